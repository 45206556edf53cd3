"""The gradient of local response normalization, DirectML's LOCAL_RESPONSE_NORMALIZATION_GRAD.

    s = Bias + Alpha/LocalSize * sum of X^2 over the window of an element
    the forward pass's output = X s^-Beta
    OutputGradient = D s^-Beta - 2 Alpha Beta/LocalSize X sum of D X s^(-Beta - 1) over the windows with the element

X is Input, D is InputGradient. A window has the elements from (LocalSize - 1)/2, rounded down, before its own to
(LocalSize - 1)/2, rounded up, behind it: of the channels, or else along every spatial dimension. It ends where the
array does. All arrays have one type and one shape. Arithmetic is float32 (float64 for float64); it rounds once, at the
store.

Source: DirectML, DML_LOCAL_RESPONSE_NORMALIZATION_GRAD_OPERATOR_DESC. Extensions: bfloat16, float64, one and three
spatial dimensions, channels-last arrays by their strides.
"""
