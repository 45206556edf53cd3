"""Stage 1: what is rewritten in the graph that Dynamo has traced, of calls as the model wrote them, and to what."""
