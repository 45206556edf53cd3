"""Building blocks: loops over memory that operators give their arithmetic to. No operator is named here."""
