"""The contracts of registry.yaml, checked. Made by tools/stubs.py."""

# ruff: noqa: E501
# fmt: off
from gradkern.contract.schema import Attribute, Axis, Example, Flat, Input, Ones, Operator, Output

DIGEST = 'f87b3a511ad1fbe4c8ea7ab4c1af32ef27f783a722d7b58faad48c1ded5f7f3c'
OPERATORS = {
    'BatchNormalization': Operator(
        domain='ai.onnx',
        since_version=15,
        family='batch_norm',
        doc='Batch normalization in training, with the statistics of the batch that its gradient takes, a residual that is added and an activation.',
        types={'T': 'data', 'T1': 'scale and bias', 'T2': 'running statistics', 'U': 'statistics of the batch; float64 where the others are, else float32'},
        combinations=(
            {'T': 'float32', 'T1': 'float32', 'T2': 'float32', 'U': 'float32'},
            {'T': 'float64', 'T1': 'float64', 'T2': 'float64', 'U': 'float64'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float16', 'U': 'float32'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float32', 'U': 'float32'},
            {'T': 'float16', 'T1': 'float32', 'T2': 'float32', 'U': 'float32'},
            {'T': 'bfloat16', 'T1': 'float32', 'T2': 'float32', 'U': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'float32', 'U': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'bfloat16', 'U': 'float32'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),},
        inputs=(
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input'),
            Input(name='scale', type='T1', shape=('C',), doc='scale of each channel'),
            Input(name='B', type='T1', shape=('C',), doc='bias of each channel'),
            Input(name='input_mean', type='T2', shape=('C',), optional=True, doc='running mean of each channel so far'),
            Input(name='input_var', type='T2', shape=('C',), values='positive', optional=True, doc='running variance of each channel so far'),
            Input(name='Z', type='T', shape=('N', 'C', 'spatial'), optional=True, default=False, doc='residual, added before the activation'),),
        outputs=(
            Output(name='Y', type='T', like='X', optional=True, doc='(X - saved_mean) * saved_inv_std * scale + B + Z, and of that the activation'),
            Output(name='running_mean', type='T2', like='input_mean', optional=True, default=False, doc='input_mean * momentum + mean * (1 - momentum); input_mean itself of a batch of nothing'),
            Output(name='running_var', type='T2', like='input_var', optional=True, default=False, doc='input_var * momentum + variance * (1 - momentum); input_var itself of a batch of nothing'),
            Output(name='saved_mean', type='U', shape=('C',), optional=True, doc='mean of each channel of the batch; 0 of nothing'),
            Output(name='saved_inv_std', type='U', shape=('C',), optional=True, doc='1 / sqrt(variance + epsilon) of each channel of the batch; 0 of nothing'),),
        attributes={
            'epsilon': Attribute(type='float', default=1e-05, minimum=0, doc='added to the variance'),
            'momentum': Attribute(type='float', default=0.9, minimum=0, doc="how much of the running statistics stays, as ONNX has it; PyTorch's momentum is 1 less that"),
            'training_mode': Attribute(type='int', default=1, allowed=(1,), doc='statistics are those of the batch'),
            'activation': Attribute(type='string', default='none', allowed=('none', 'relu', 'leaky_relu', 'silu'), doc='none, relu, leaky_relu (t where t > 0, else activation_alpha * t) or silu (t / (1 + exp(-t)))'),
            'activation_alpha': Attribute(type='float', default=0.01, minimum=0, doc="the slope of leaky_relu below 0; finite, and not negative, as the output's sign has to be the input's. With the other activations it has no effect"),
            'unbiased': Attribute(type='int', default=0, allowed=(0, 1), doc='1: running_var takes the variance over one element less, as in PyTorch: NaN for one element; 0: over all, as in ONNX'),},
        in_place=(
            {'X': 'Y'},
            {'Z': 'Y'},
            {'input_mean': 'running_mean'},
            {'input_var': 'running_var'},),
        providers={'cuda': ('cuda.forward',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7)}),
            Example(axes={'N': 16, 'C': 33, 'spatial': ()}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,)}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5)}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56)}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28)}),
            Example(axes={'N': 128, 'C': 64, 'spatial': (112, 112)}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7)}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': ()}),
            Example(axes={'N': 64, 'C': 60, 'spatial': (28, 28)}),
            Example(axes={'N': 8, 'C': 32, 'spatial': (16, 64, 64)}),
            Example(axes={'N': 4, 'C': 16, 'spatial': (512, 512)}),),),
    'BatchNormalizationFromStatistics': Operator(
        domain='gradkern',
        since_version=1,
        family='batch_norm',
        doc='Last step of batch normalization over a batch in parts, one part on each device; Y of one part, from the statistics of all.',
        types={'T': 'data', 'T1': 'scale and bias', 'T2': 'statistics of the whole batch'},
        combinations=(
            {'T': 'float32', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'float64', 'T1': 'float64', 'T2': 'float64'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float32'},
            {'T': 'float16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'float32'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),},
        inputs=(
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input'),
            Input(name='scale', type='T1', shape=('C',), doc='scale of each channel'),
            Input(name='B', type='T1', shape=('C',), doc='bias of each channel'),
            Input(name='saved_mean', type='T2', shape=('C',), doc='mean of each channel'),
            Input(name='saved_inv_std', type='T2', shape=('C',), values='positive', doc='1 / sqrt(variance + epsilon) of each channel'),),
        outputs=(
            Output(name='Y', type='T', like='X', doc='(X - saved_mean) * saved_inv_std * scale + B'),),
        attributes={},
        in_place=(
            {'X': 'Y'},),
        providers={'cuda': ('cuda.from_statistics',), 'cpu': ('cpu_from_statistics',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7)}),
            Example(axes={'N': 16, 'C': 33, 'spatial': ()}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,)}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5)}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56)}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28)}),
            Example(axes={'N': 128, 'C': 64, 'spatial': (112, 112)}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7)}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': ()}),
            Example(axes={'N': 64, 'C': 60, 'spatial': (28, 28)}),
            Example(axes={'N': 8, 'C': 32, 'spatial': (16, 64, 64)}),
            Example(axes={'N': 4, 'C': 16, 'spatial': (512, 512)}),),),
    'BatchNormalizationGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='batch_norm',
        doc='Gradient of batch normalization in training, where mean and variance are those of the batch; DmlBatchNormalizationGrad takes them as constants.',
        types={'T': 'data and its gradients', 'T1': 'scale, and the gradients of scale and bias', 'T2': 'saved statistics'},
        combinations=(
            {'T': 'float32', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'float64', 'T1': 'float64', 'T2': 'float64'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float16'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float32'},
            {'T': 'float16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'bfloat16'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),},
        inputs=(
            Input(name='dY', type='T', shape=('N', 'C', 'spatial'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input of the forward pass'),
            Input(name='Scale', type='T1', shape=('C',), doc='scale of each channel'),
            Input(name='saved_mean', type='T2', shape=('C',), doc='mean of each channel'),
            Input(name='saved_inv_std', type='T2', shape=('C',), values='positive', doc='1 / sqrt(variance + epsilon) of each channel'),
            Input(name='B', type='T1', shape=('C',), optional=True, default=False, doc="bias of each channel, to recompute the activation's input"),
            Input(name='Y', type='T', shape=('N', 'C', 'spatial'), optional=True, default=False, doc='output of the forward pass: where relu was 0, or leaky_relu negative; in place of B'),
            Input(name='dY2', type='T', shape=('N', 'C', 'spatial'), optional=True, default=False, doc='another gradient of the output, added to dY'),),
        outputs=(
            Output(name='dX', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='dScale', type='T1', like='Scale', optional=True, doc='gradient of Scale'),
            Output(name='dBias', type='T1', like='Scale', optional=True, doc='gradient of the bias'),
            Output(name='dZ', type='T', like='X', optional=True, default=False, appended=True, doc="gradient of the residual: dY + dY2 times the activation's derivative"),),
        attributes={
            'epsilon': Attribute(type='float', default=1e-05, minimum=0, doc='accepted for compatibility; saved_inv_std already has it'),
            'mode': Attribute(type='string', default='auto', allowed=('auto', 'spatial', 'spatial_persistent'), doc="on a GPU, cuDNN's older functions in this mode and nothing else; auto, the fastest of all kernels"),
            'activation': Attribute(type='string', default='none', allowed=('none', 'relu', 'leaky_relu', 'silu'), doc='none, relu, leaky_relu (t where t > 0, else activation_alpha * t) or silu (t / (1 + exp(-t)))'),
            'activation_alpha': Attribute(type='float', default=0.01, minimum=0, doc="the slope of leaky_relu below 0; finite, and not negative, as the output's sign has to be the input's. With the other activations it has no effect"),},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},
            {'dY': 'dZ'},
            {'dY2': 'dZ'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7)}),
            Example(axes={'N': 16, 'C': 33, 'spatial': ()}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,)}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5)}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56)}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28)}),
            Example(axes={'N': 128, 'C': 64, 'spatial': (112, 112)}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7)}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': ()}),
            Example(axes={'N': 64, 'C': 60, 'spatial': (28, 28)}),
            Example(axes={'N': 8, 'C': 32, 'spatial': (16, 64, 64)}),
            Example(axes={'N': 4, 'C': 16, 'spatial': (512, 512)}),),),
    'BatchNormalizationGradFromSums': Operator(
        domain='gradkern',
        since_version=1,
        family='batch_norm',
        doc='Second step of BatchNormalizationGrad over a batch in parts, one part on each device; dX of one part, from the sums over all.',
        types={'T': 'data and its gradients', 'T1': 'scale', 'T2': 'statistics of the whole batch, the sums and the counts'},
        combinations=(
            {'T': 'float32', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'float64', 'T1': 'float64', 'T2': 'float64'},
            {'T': 'float16', 'T1': 'float16', 'T2': 'float32'},
            {'T': 'float16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'float32', 'T2': 'float32'},
            {'T': 'bfloat16', 'T1': 'bfloat16', 'T2': 'float32'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),
            'parts': Axis(doc='parts of the batch'),},
        inputs=(
            Input(name='dY', type='T', shape=('N', 'C', 'spatial'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input of the forward pass'),
            Input(name='Scale', type='T1', shape=('C',), doc='scale of each channel'),
            Input(name='saved_mean', type='T2', shape=('C',), doc='mean of each channel'),
            Input(name='saved_inv_std', type='T2', shape=('C',), values='positive', doc='1 / sqrt(variance + epsilon) of each channel'),
            Input(name='dScale', type='T2', shape=('C',), doc='gradient of Scale over the whole batch'),
            Input(name='dBias', type='T2', shape=('C',), doc='gradient of the bias over the whole batch'),
            Input(name='counts', type='T2', shape=('parts',), values='positive', optional=True, doc='elements of each channel in each part; the device adds them up. In place of count'),),
        outputs=(
            Output(name='dX', type='T', like='X', doc='gradient of X'),),
        attributes={
            'count': Attribute(type='int', minimum=0, doc='elements of each channel in the whole batch; in place of counts'),},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},),
        providers={'cuda': ('cuda.sync',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7)}, attributes={'count': 350}),
            Example(axes={'N': 16, 'C': 33, 'spatial': ()}, attributes={'count': 16}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,)}, attributes={'count': 85}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5)}, attributes={'count': 180}),
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7), 'parts': 3}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56)}, attributes={'count': 401408}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28)}, attributes={'count': 50176}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7)}, attributes={'count': 6272}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': ()}, attributes={'count': 16384}),),),
    'BatchNormalizationGradSums': Operator(
        domain='gradkern',
        since_version=1,
        family='batch_norm',
        doc='First step of BatchNormalizationGrad over a batch in parts, one part on each device; its sums over one part, to be added up over all.',
        types={'T': 'data', 'T2': 'statistics of the whole batch, and the sums'},
        combinations=(
            {'T': 'float32', 'T2': 'float32'},
            {'T': 'float64', 'T2': 'float64'},
            {'T': 'float16', 'T2': 'float32'},
            {'T': 'bfloat16', 'T2': 'float32'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),
            'numbers': Axis(doc='of C channels 2 C: dScale and behind it dBias'),},
        inputs=(
            Input(name='dY', type='T', shape=('N', 'C', 'spatial'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input of the forward pass'),
            Input(name='saved_mean', type='T2', shape=('C',), doc='mean of each channel'),
            Input(name='saved_inv_std', type='T2', shape=('C',), values='positive', doc='1 / sqrt(variance + epsilon) of each channel'),),
        outputs=(
            Output(name='dScale', type='T2', like='saved_mean', optional=True, doc="this part's share of the gradient of Scale"),
            Output(name='dBias', type='T2', like='saved_mean', optional=True, doc="this part's share of the gradient of the bias"),
            Output(name='sums', type='T2', shape=('numbers',), optional=True, default=False, appended=True, doc='dScale and dBias, one behind the other: one message to the other parts'),),
        attributes={},
        providers={'cuda': ('cuda.sync',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7), 'numbers': 6}),
            Example(axes={'N': 16, 'C': 33, 'spatial': (), 'numbers': 66}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,), 'numbers': 10}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5), 'numbers': 16}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56), 'numbers': 512}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28), 'numbers': 1024}),
            Example(axes={'N': 128, 'C': 64, 'spatial': (112, 112), 'numbers': 128}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7), 'numbers': 4096}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': (), 'numbers': 2048}),
            Example(axes={'N': 64, 'C': 60, 'spatial': (28, 28), 'numbers': 120}),
            Example(axes={'N': 8, 'C': 32, 'spatial': (16, 64, 64), 'numbers': 64}),
            Example(axes={'N': 4, 'C': 16, 'spatial': (512, 512), 'numbers': 32}),),),
    'BatchNormalizationMergeStatistics': Operator(
        domain='gradkern',
        since_version=1,
        family='batch_norm',
        doc='Statistics of a batch in parts, one part on each device, from those of every part, and the running statistics that follow.',
        types={'T2': 'statistics', 'T3': 'running statistics'},
        combinations=(
            {'T2': 'float32', 'T3': 'float32'},
            {'T2': 'float64', 'T3': 'float64'},
            {'T2': 'float32', 'T3': 'float16'},
            {'T2': 'float32', 'T3': 'bfloat16'},
            {'T2': 'float64', 'T3': 'float32'},),
        axes={
            'parts': Axis(doc='parts of the batch'),
            'numbers': Axis(doc='of C channels 2 C + 1: the means, the variances, and how many elements each channel has'),
            'C': Axis(doc='channels'),},
        inputs=(
            Input(name='part_statistics', type='T2', shape=('parts', 'numbers'), values='positive', doc='means, variances and number of elements (0 or more) of each part'),
            Input(name='input_mean', type='T3', shape=('C',), optional=True, doc='running mean of each channel so far'),
            Input(name='input_var', type='T3', shape=('C',), values='positive', optional=True, doc='running variance of each channel so far'),),
        outputs=(
            Output(name='statistics', type='T2', shape=('numbers',), optional=True, doc='of the whole batch, with 1 / sqrt(variance + epsilon) for each variance; 0 of nothing'),
            Output(name='sample_statistics', type='T2', shape=('numbers',), optional=True, doc='of the whole batch, with variances that are divided by one element less, if there are two'),
            Output(name='running_mean', type='T3', like='input_mean', optional=True, default=False, appended=True, doc='input_mean * momentum + mean * (1 - momentum)'),
            Output(name='running_var', type='T3', like='input_var', optional=True, default=False, appended=True, doc='input_var * momentum + variance of sample_statistics * (1 - momentum)'),),
        attributes={
            'epsilon': Attribute(type='float', default=1e-05, minimum=0, doc='added to the variance'),
            'momentum': Attribute(type='float', default=0.9, minimum=0, doc="how much of the running statistics stays, as ONNX has it; PyTorch's momentum is 1 less that"),},
        in_place=(
            {'input_mean': 'running_mean'},
            {'input_var': 'running_var'},),
        providers={'cuda': ('cuda.merge',), 'cpu': ('cpu_merge',)},
        examples=(
            Example(axes={'parts': 3, 'numbers': 13, 'C': 6}),
            Example(axes={'parts': 1, 'numbers': 3, 'C': 1}),
            Example(axes={'parts': 8, 'numbers': 2049, 'C': 1024}),),
        benchmarks=(
            Example(axes={'parts': 2, 'numbers': 513, 'C': 256}),
            Example(axes={'parts': 8, 'numbers': 4097, 'C': 2048}),),),
    'BatchNormalizationStatistics': Operator(
        domain='gradkern',
        since_version=1,
        family='batch_norm',
        doc='First step of batch normalization over a batch in parts, one part on each device; the statistics of one part, to be merged with those of the others.',
        types={'T': 'data', 'T2': 'statistics'},
        combinations=(
            {'T': 'float32', 'T2': 'float32'},
            {'T': 'float64', 'T2': 'float64'},
            {'T': 'float16', 'T2': 'float32'},
            {'T': 'bfloat16', 'T2': 'float32'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='channels'),
            'spatial': Axis(doc='spatial dimensions', group=True),
            'numbers': Axis(doc='of C channels 2 C + 1: the means, the variances, and how many elements each channel has'),},
        inputs=(
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input'),),
        outputs=(
            Output(name='part_statistics', type='T2', shape=('numbers',), doc='means, variances and number of elements of this part; 0 of nothing'),),
        attributes={},
        providers={'cuda': ('cuda.statistics',), 'cpu': ('cpu_statistics',)},
        examples=(
            Example(axes={'N': 4, 'C': 3, 'spatial': (5, 7), 'numbers': 7}),
            Example(axes={'N': 16, 'C': 33, 'spatial': (), 'numbers': 67}),
            Example(axes={'N': 2, 'C': 5, 'spatial': (17,), 'numbers': 11}),
            Example(axes={'N': 2, 'C': 8, 'spatial': (3, 4, 5), 'numbers': 17}),),
        benchmarks=(
            Example(axes={'N': 64, 'C': 256, 'spatial': (56, 56), 'numbers': 513}),
            Example(axes={'N': 32, 'C': 512, 'spatial': (28, 28), 'numbers': 1025}),
            Example(axes={'N': 128, 'C': 64, 'spatial': (112, 112), 'numbers': 129}),
            Example(axes={'N': 64, 'C': 2048, 'spatial': (7, 7), 'numbers': 4097}),
            Example(axes={'N': 8192, 'C': 1024, 'spatial': (), 'numbers': 2049}),
            Example(axes={'N': 64, 'C': 60, 'spatial': (28, 28), 'numbers': 121}),
            Example(axes={'N': 8, 'C': 32, 'spatial': (16, 64, 64), 'numbers': 65}),
            Example(axes={'N': 4, 'C': 16, 'spatial': (512, 512), 'numbers': 33}),),),
    'BiasFastGelu': Operator(
        domain='com.microsoft',
        since_version=1,
        family='bias_gelu',
        doc='GELU(A + B) in its approximate form, with the hyperbolic tangent.',
        types={'T': 'data', 'TB': 'bias'},
        combinations=(
            {'T': 'float32', 'TB': 'float32'},
            {'T': 'float64', 'TB': 'float64'},
            {'T': 'float16', 'TB': 'float16'},
            {'T': 'float16', 'TB': 'float32'},
            {'T': 'bfloat16', 'TB': 'bfloat16'},
            {'T': 'bfloat16', 'TB': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='A', type='T', shape=('rows', 'columns'), doc='input'),
            Input(name='B', type='TB', shape=('columns',), doc='bias'),),
        outputs=(
            Output(name='C', type='T', like='A', optional=True, doc='GELU of the sum'),),
        attributes={},
        in_place=(
            {'A': 'C'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}),
            Example(axes={'rows': (3, 5), 'columns': 33}),
            Example(axes={'rows': (), 'columns': 17}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}),
            Example(axes={'rows': (8192,), 'columns': 4096}),
            Example(axes={'rows': (32768,), 'columns': 4096}),
            Example(axes={'rows': (8192,), 'columns': 16384}),
            Example(axes={'rows': (65536,), 'columns': 3072}),
            Example(axes={'rows': (100000,), 'columns': 1001}),
            Example(axes={'rows': (128,), 'columns': 3072}),),),
    'BiasFastGeluGrad_dX': Operator(
        domain='com.microsoft',
        since_version=1,
        family='bias_gelu',
        doc='Gradient of GELU(X + B) in its approximate form, with the hyperbolic tangent.',
        types={'T': 'data and its gradients', 'TB': 'bias and its gradient'},
        combinations=(
            {'T': 'float32', 'TB': 'float32'},
            {'T': 'float64', 'TB': 'float64'},
            {'T': 'float16', 'TB': 'float16'},
            {'T': 'float16', 'TB': 'float32'},
            {'T': 'bfloat16', 'TB': 'bfloat16'},
            {'T': 'bfloat16', 'TB': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='dY', type='T', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input of the forward pass'),
            Input(name='B', type='TB', shape=('columns',), doc='bias'),),
        outputs=(
            Output(name='dX', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='dB', type='TB', like='B', optional=True, default=False, doc='gradient of B; summed before dX is rounded'),),
        attributes={},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}),
            Example(axes={'rows': (3, 5), 'columns': 33}),
            Example(axes={'rows': (), 'columns': 17}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}),
            Example(axes={'rows': (8192,), 'columns': 4096}),
            Example(axes={'rows': (32768,), 'columns': 4096}),
            Example(axes={'rows': (8192,), 'columns': 16384}),
            Example(axes={'rows': (65536,), 'columns': 3072}),
            Example(axes={'rows': (100000,), 'columns': 1001}),
            Example(axes={'rows': (128,), 'columns': 3072}),),),
    'BiasGelu': Operator(
        domain='com.microsoft',
        since_version=1,
        family='bias_gelu',
        doc='GELU(A + B) in its exact form, with the normal distribution function.',
        types={'T': 'data', 'TB': 'bias'},
        combinations=(
            {'T': 'float32', 'TB': 'float32'},
            {'T': 'float64', 'TB': 'float64'},
            {'T': 'float16', 'TB': 'float16'},
            {'T': 'float16', 'TB': 'float32'},
            {'T': 'bfloat16', 'TB': 'bfloat16'},
            {'T': 'bfloat16', 'TB': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='A', type='T', shape=('rows', 'columns'), doc='input'),
            Input(name='B', type='TB', shape=('columns',), doc='bias'),),
        outputs=(
            Output(name='C', type='T', like='A', optional=True, doc='GELU of the sum'),),
        attributes={},
        in_place=(
            {'A': 'C'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}),
            Example(axes={'rows': (3, 5), 'columns': 33}),
            Example(axes={'rows': (), 'columns': 17}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}),
            Example(axes={'rows': (8192,), 'columns': 4096}),
            Example(axes={'rows': (32768,), 'columns': 4096}),
            Example(axes={'rows': (8192,), 'columns': 16384}),
            Example(axes={'rows': (65536,), 'columns': 3072}),
            Example(axes={'rows': (100000,), 'columns': 1001}),
            Example(axes={'rows': (128,), 'columns': 3072}),),),
    'BiasGeluGrad_dX': Operator(
        domain='com.microsoft',
        since_version=1,
        family='bias_gelu',
        doc='Gradient of GELU(X + B) in its exact form, with the normal distribution function.',
        types={'T': 'data and its gradients', 'TB': 'bias and its gradient'},
        combinations=(
            {'T': 'float32', 'TB': 'float32'},
            {'T': 'float64', 'TB': 'float64'},
            {'T': 'float16', 'TB': 'float16'},
            {'T': 'float16', 'TB': 'float32'},
            {'T': 'bfloat16', 'TB': 'bfloat16'},
            {'T': 'bfloat16', 'TB': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='dY', type='T', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input of the forward pass'),
            Input(name='B', type='TB', shape=('columns',), doc='bias'),),
        outputs=(
            Output(name='dX', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='dB', type='TB', like='B', optional=True, default=False, doc='gradient of B; summed before dX is rounded'),),
        attributes={},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}),
            Example(axes={'rows': (3, 5), 'columns': 33}),
            Example(axes={'rows': (), 'columns': 17}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}),
            Example(axes={'rows': (8192,), 'columns': 4096}),
            Example(axes={'rows': (32768,), 'columns': 4096}),
            Example(axes={'rows': (8192,), 'columns': 16384}),
            Example(axes={'rows': (65536,), 'columns': 3072}),
            Example(axes={'rows': (100000,), 'columns': 1001}),
            Example(axes={'rows': (128,), 'columns': 3072}),),),
    'Conv': Operator(
        domain='ai.onnx',
        since_version=11,
        family='conv',
        doc='Convolution in one to three dimensions, grouped, strided, dilated and padded, with a bias.',
        types={'T': 'all tensors'},
        combinations=(
            {'T': 'float32'},
            {'T': 'float64'},
            {'T': 'float16'},
            {'T': 'bfloat16'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='input channels'),
            'M': Axis(doc='output channels'),
            'C_per_group': Axis(doc='input channels of one group'),
            'spatial': Axis(doc='spatial dimensions', group=True, least=1, most=3),
            'kernel': Axis(doc='extent of the kernel', group=True, as_many_as='spatial'),
            'out': Axis(doc='spatial dimensions of the output', group=True, as_many_as='spatial'),},
        inputs=(
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input'),
            Input(name='W', type='T', shape=('M', 'C_per_group', 'kernel'), doc='weights'),
            Input(name='B', type='T', shape=('M',), optional=True, doc='bias of each output channel'),),
        outputs=(
            Output(name='Y', type='T', shape=('N', 'M', 'out'), order_of='X', doc='each window of X times the weights, added up, and the bias'),),
        attributes={
            'auto_pad': Attribute(type='string', default='NOTSET', allowed=('NOTSET', 'VALID', 'SAME_UPPER', 'SAME_LOWER'), doc='how pads are found'),
            'dilations': Attribute(type='ints', default=1, minimum=1, per='spatial', doc='distance between the taps of the kernel'),
            'group': Attribute(type='int', default=1, minimum=1, doc='groups the channels are divided into'),
            'kernel_shape': Attribute(type='ints', minimum=1, per='spatial', doc='extent of the kernel; must agree with W, whose extent is the default'),
            'pads': Attribute(type='ints', minimum=0, per='spatial', times=2, doc='zeros before each spatial dimension then after each; 0 by default'),
            'strides': Attribute(type='ints', default=1, minimum=1, per='spatial', doc='step of the kernel'),},
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu.forward',)},
        examples=(
            Example(axes={'N': 2, 'C': 6, 'M': 4, 'C_per_group': 6, 'spatial': (9, 8), 'kernel': (3, 3), 'out': (9, 8)}, attributes={'pads': (1, 1, 1, 1)}),
            Example(axes={'N': 3, 'C': 4, 'M': 8, 'C_per_group': 2, 'spatial': (21,), 'kernel': (4,), 'out': (10,)}, attributes={'group': 2, 'strides': (2,), 'pads': (0, 1)}),
            Example(axes={'N': 1, 'C': 2, 'M': 3, 'C_per_group': 2, 'spatial': (5, 6, 7), 'kernel': (3, 2, 3), 'out': (3, 5, 3)}, attributes={'dilations': (1, 1, 2)}),
            Example(axes={'N': 2, 'C': 5, 'M': 10, 'C_per_group': 1, 'spatial': (7, 7), 'kernel': (3, 3), 'out': (4, 4)}, attributes={'group': 5, 'strides': (2, 2), 'auto_pad': 'SAME_UPPER'}),
            Example(axes={'N': 2, 'C': 7, 'M': 5, 'C_per_group': 7, 'spatial': (4, 5), 'kernel': (1, 1), 'out': (4, 5)}),),
        benchmarks=(
            Example(axes={'N': 32, 'C': 64, 'M': 64, 'C_per_group': 64, 'spatial': (56, 56), 'kernel': (3, 3), 'out': (56, 56)}, attributes={'pads': (1, 1, 1, 1)}),
            Example(axes={'N': 32, 'C': 128, 'M': 128, 'C_per_group': 1, 'spatial': (28, 28), 'kernel': (3, 3), 'out': (28, 28)}, attributes={'pads': (1, 1, 1, 1), 'group': 128}),
            Example(axes={'N': 16, 'C': 256, 'M': 256, 'C_per_group': 256, 'spatial': (2000,), 'kernel': (3,), 'out': (2000,)}, attributes={'pads': (1, 1)}),),),
    'ConvGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='conv',
        doc='Gradient of convolution in one to three dimensions, grouped, strided, dilated and padded as ONNX Conv.',
        types={'T': 'all tensors'},
        combinations=(
            {'T': 'float32'},
            {'T': 'float64'},
            {'T': 'float16'},
            {'T': 'bfloat16'},),
        axes={
            'N': Axis(doc='batch'),
            'C': Axis(doc='input channels'),
            'M': Axis(doc='output channels'),
            'C_per_group': Axis(doc='input channels of one group'),
            'spatial': Axis(doc='spatial dimensions', group=True, least=1, most=3),
            'kernel': Axis(doc='extent of the kernel', group=True, as_many_as='spatial'),
            'out': Axis(doc='spatial dimensions of the output', group=True, as_many_as='spatial'),},
        inputs=(
            Input(name='dY', type='T', shape=('N', 'M', 'out'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('N', 'C', 'spatial'), doc='input of the forward pass'),
            Input(name='W', type='T', shape=('M', 'C_per_group', 'kernel'), doc='weights'),),
        outputs=(
            Output(name='dX', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='dW', type='T', like='W', optional=True, doc='gradient of W'),
            Output(name='dB', type='T', shape=('M',), optional=True, doc='gradient of the bias'),),
        attributes={
            'auto_pad': Attribute(type='string', default='NOTSET', allowed=('NOTSET', 'VALID', 'SAME_UPPER', 'SAME_LOWER'), doc='how pads are found'),
            'dilations': Attribute(type='ints', default=1, minimum=1, per='spatial', doc='distance between the taps of the kernel'),
            'group': Attribute(type='int', default=1, minimum=1, doc='groups the channels are divided into'),
            'kernel_shape': Attribute(type='ints', minimum=1, per='spatial', doc='extent of the kernel; must agree with W, whose extent is the default'),
            'pads': Attribute(type='ints', minimum=0, per='spatial', times=2, doc='zeros before each spatial dimension then after each; 0 by default'),
            'strides': Attribute(type='ints', default=1, minimum=1, per='spatial', doc='step of the kernel'),},
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu.plan',)},
        examples=(
            Example(axes={'N': 2, 'C': 6, 'M': 4, 'C_per_group': 6, 'spatial': (9, 8), 'kernel': (3, 3), 'out': (9, 8)}, attributes={'pads': (1, 1, 1, 1)}),
            Example(axes={'N': 3, 'C': 4, 'M': 8, 'C_per_group': 2, 'spatial': (21,), 'kernel': (4,), 'out': (10,)}, attributes={'group': 2, 'strides': (2,), 'pads': (0, 1)}),
            Example(axes={'N': 1, 'C': 2, 'M': 3, 'C_per_group': 2, 'spatial': (5, 6, 7), 'kernel': (3, 2, 3), 'out': (3, 5, 3)}, attributes={'dilations': (1, 1, 2)}),
            Example(axes={'N': 2, 'C': 5, 'M': 10, 'C_per_group': 1, 'spatial': (7, 7), 'kernel': (3, 3), 'out': (4, 4)}, attributes={'group': 5, 'strides': (2, 2), 'auto_pad': 'SAME_UPPER'}),
            Example(axes={'N': 2, 'C': 7, 'M': 5, 'C_per_group': 7, 'spatial': (4, 5), 'kernel': (1, 1), 'out': (4, 5)}),),
        benchmarks=(
            Example(axes={'N': 32, 'C': 64, 'M': 64, 'C_per_group': 64, 'spatial': (56, 56), 'kernel': (3, 3), 'out': (56, 56)}, attributes={'pads': (1, 1, 1, 1)}),
            Example(axes={'N': 32, 'C': 128, 'M': 128, 'C_per_group': 1, 'spatial': (28, 28), 'kernel': (3, 3), 'out': (28, 28)}, attributes={'pads': (1, 1, 1, 1), 'group': 128}),
            Example(axes={'N': 16, 'C': 256, 'M': 256, 'C_per_group': 256, 'spatial': (2000,), 'kernel': (3,), 'out': (2000,)}, attributes={'pads': (1, 1)}),),),
    'DmlBatchNormalizationGrad': Operator(
        domain='com.microsoft.dml',
        since_version=1,
        family='dml_batch_norm',
        doc="DirectML's gradient of batch normalization, where mean and variance are constants; BatchNormalizationGrad takes them as those of the batch.",
        types={'T': 'all tensors'},
        combinations=(
            {'T': 'float32'},
            {'T': 'float64'},
            {'T': 'float16'},
            {'T': 'bfloat16'},),
        axes={
            'sizes': Axis(doc='all dimensions', group=True, least=1, most=8),
            'statistics': Axis(doc='dimensions of the statistics', group=True, as_many_as='sizes', broadcasts_to='sizes'),},
        inputs=(
            Input(name='Input', type='T', shape=('sizes',), doc='input of the forward pass'),
            Input(name='InputGradient', type='T', shape=('sizes',), doc='gradient of the output'),
            Input(name='Mean', type='T', shape=('statistics',), doc='mean'),
            Input(name='Variance', type='T', shape=('statistics',), values='positive', doc='variance'),
            Input(name='Scale', type='T', shape=('statistics',), doc='scale'),),
        outputs=(
            Output(name='OutputGradient', type='T', like='Input', optional=True, doc='gradient of Input'),
            Output(name='OutputScaleGradient', type='T', like='Scale', optional=True, doc='gradient of Scale'),
            Output(name='OutputBiasGradient', type='T', like='Scale', optional=True, doc='gradient of the bias'),),
        attributes={
            'Epsilon': Attribute(type='float', required=True, minimum=0, doc='added to Variance'),},
        in_place=(
            {'InputGradient': 'OutputGradient'},
            {'Input': 'OutputGradient'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'sizes': (4, 3, 5, 7), 'statistics': (1, 3, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (6, 9), 'statistics': (1, 9)}, attributes={'Epsilon': 0.001}),
            Example(axes={'sizes': (3, 4, 5), 'statistics': (3, 1, 5)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (5, 6, 7), 'statistics': (1, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (2, 3, 4), 'statistics': (2, 3, 4)}, attributes={'Epsilon': 1e-05}),),
        benchmarks=(
            Example(axes={'sizes': (64, 256, 56, 56), 'statistics': (1, 256, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (128, 64, 112, 112), 'statistics': (1, 64, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (32, 512, 28, 28), 'statistics': (1, 512, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (64, 2048, 7, 7), 'statistics': (1, 2048, 1, 1)}, attributes={'Epsilon': 1e-05}),
            Example(axes={'sizes': (8192, 1024), 'statistics': (1, 1024)}, attributes={'Epsilon': 1e-05}),),),
    'InvertibleLayerNormalizationGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='layer_norm',
        doc='Gradient of layer normalization from its output; the normalized input is rebuilt as (Y - bias) / scale.',
        types={'G': 'gradient of the output; the type of T or of V', 'T': 'X_grad alone', 'U': 'saved statistics', 'V': 'output of the forward pass, scale, bias and their gradients'},
        combinations=(
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'G': 'float64', 'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float16', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'bfloat16', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, begins_at='axis'),},
        inputs=(
            Input(name='Y_grad', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='Y', type='V', shape=('rows', 'columns'), doc='output of the forward pass'),
            Input(name='scale', type='V', shape=('columns',), also=((Flat(flat='columns'),),), values='nonzero', doc='scale of each column; a zero cannot be inverted'),
            Input(name='bias', type='V', shape=('columns',), also=((Flat(flat='columns'),),), doc='bias of each column'),
            Input(name='inv_std_var', type='U', shape=('rows',), also=(('rows', Ones(ones='columns')), (Flat(flat='rows'),)), values='positive', doc='1 / sqrt(variance + epsilon) of each row'),),
        outputs=(
            Output(name='X_grad', type='T', like='Y', optional=True, doc='gradient of the input of the forward pass'),
            Output(name='scale_grad', type='V', like='scale', optional=True, doc='gradient of scale'),
            Output(name='bias_grad', type='V', like='scale', optional=True, doc='gradient of the bias'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='Y', doc='first normalized dimension'),
            'X_grad_type': Attribute(type='type', default='V', binds='T', doc='type of X_grad; without it the type of an `out` array for X_grad, else that of V'),},
        in_place=(
            {'Y_grad': 'X_grad'},
            {'Y': 'X_grad'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (40,)}),
            Example(axes={'rows': (3, 5), 'columns': (4, 33)}, attributes={'axis': 2}),
            Example(axes={'rows': (), 'columns': (7, 9)}, attributes={'axis': 0}),
            Example(axes={'rows': (300,), 'columns': (3,)}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': (1024,)}),
            Example(axes={'rows': (8192,), 'columns': (4096,)}),
            Example(axes={'rows': (65536,), 'columns': (768,)}),
            Example(axes={'rows': (16384,), 'columns': (4096,)}),),),
    'LayerNormalization': Operator(
        domain='ai.onnx',
        since_version=17,
        family='layer_norm',
        doc='Layer normalization over the dimensions from `axis` on, with the statistics that its gradients take, LayerNormalizationGrad and InvertibleLayerNormalizationGrad.',
        types={'T': 'input', 'G': 'output; the type of T or of V', 'U': 'statistics; float64 where the others are, else float32', 'V': 'scale and bias'},
        combinations=(
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'G': 'float64', 'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float16', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'bfloat16', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, begins_at='axis'),},
        inputs=(
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input'),
            Input(name='Scale', type='V', shape=('columns',), also=((Flat(flat='columns'),),), doc='scale of each column'),
            Input(name='B', type='V', shape=('columns',), also=((Flat(flat='columns'),),), optional=True, doc='bias of each column; 0 if it is not given'),),
        outputs=(
            Output(name='Y', type='G', like='X', optional=True, doc='(X - Mean) * InvStdDev * Scale + B'),
            Output(name='Mean', type='U', shape=('rows', Ones(ones='columns')), optional=True, doc='mean of each row; 0 of a row of nothing'),
            Output(name='InvStdDev', type='U', shape=('rows', Ones(ones='columns')), optional=True, doc='1 / sqrt(variance + epsilon) of each row; 0 of a row of nothing'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='X', doc='first normalized dimension'),
            'epsilon': Attribute(type='float', default=1e-05, minimum=0, doc='added to the variance'),
            'stash_type': Attribute(type='int', default=1, allowed=(1,), doc="ONNX's number of the statistics' type; 1 is float32"),
            'Y_type': Attribute(type='type', default='V', binds='G', doc='type of Y; without it the type of an `out` array for Y, else that of V'),},
        in_place=(
            {'X': 'Y'},),
        providers={'cuda': ('cuda.forward.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (40,)}),
            Example(axes={'rows': (3, 5), 'columns': (4, 33)}, attributes={'axis': 2}),
            Example(axes={'rows': (), 'columns': (7, 9)}, attributes={'axis': 0}),
            Example(axes={'rows': (300,), 'columns': (3,)}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': (1024,)}),
            Example(axes={'rows': (8192,), 'columns': (4096,)}),
            Example(axes={'rows': (65536,), 'columns': (768,)}),
            Example(axes={'rows': (16384,), 'columns': (4096,)}),),),
    'LayerNormalizationGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='layer_norm',
        doc='Gradient of layer normalization over the dimensions from `axis` on.',
        types={'G': 'gradient of the output; the type of T or of V', 'T': 'input and its gradient', 'U': 'saved statistics', 'V': 'scale, and the gradients of scale and bias'},
        combinations=(
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'G': 'float64', 'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float16', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'bfloat16', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, begins_at='axis'),},
        inputs=(
            Input(name='Y_grad', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input of the forward pass'),
            Input(name='scale', type='V', shape=('columns',), also=((Flat(flat='columns'),),), doc='scale of each column'),
            Input(name='mean', type='U', shape=('rows',), also=(('rows', Ones(ones='columns')), (Flat(flat='rows'),)), doc='mean of each row'),
            Input(name='inv_std_dev', type='U', shape=('rows',), also=(('rows', Ones(ones='columns')), (Flat(flat='rows'),)), values='positive', doc='1 / sqrt(variance + epsilon) of each row'),
            Input(name='residual_grad', type='T', shape=('rows', 'columns'), optional=True, default=False, doc='added to X_grad: the gradient that comes to X past the norm, as to the sum of a skip form'),),
        outputs=(
            Output(name='X_grad', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='scale_grad', type='V', like='scale', optional=True, doc='gradient of scale'),
            Output(name='bias_grad', type='V', like='scale', optional=True, doc='gradient of the bias'),
            Output(name='X_grad_sum', type='V', like='scale', optional=True, default=False, appended=True, doc='sum of X_grad over rows, unrounded: the gradient of a bias that is added to X'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='X', doc='first normalized dimension'),},
        in_place=(
            {'Y_grad': 'X_grad'},
            {'X': 'X_grad'},
            {'residual_grad': 'X_grad'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (40,)}),
            Example(axes={'rows': (3, 5), 'columns': (4, 33)}, attributes={'axis': 2}),
            Example(axes={'rows': (), 'columns': (7, 9)}, attributes={'axis': 0}),
            Example(axes={'rows': (300,), 'columns': (3,)}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': (1024,)}),
            Example(axes={'rows': (8192,), 'columns': (4096,)}),
            Example(axes={'rows': (65536,), 'columns': (768,)}),
            Example(axes={'rows': (16384,), 'columns': (4096,)}),),),
    'LogSoftmaxGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='softmax',
        doc='Gradient of the logarithm of softmax as ONNX had it before version 13, over all dimensions from `axis` on.',
        types={'G': "the forward pass's output and its gradient", 'T': "gradient of the forward pass's input"},
        combinations=(
            {'G': 'float32', 'T': 'float32'},
            {'G': 'float64', 'T': 'float64'},
            {'G': 'float16', 'T': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16'},
            {'G': 'float32', 'T': 'float16'},
            {'G': 'float32', 'T': 'bfloat16'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, least=1, begins_at='axis'),},
        inputs=(
            Input(name='dY', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='G', shape=('rows', 'columns'), doc='logarithms of the probabilities: output of the forward pass'),),
        outputs=(
            Output(name='dX', type='T', like='X', doc='gradient of the input'),),
        attributes={
            'axis': Attribute(type='int', default=1, axis_of='X', doc='first dimension of a row'),
            'dX_type': Attribute(type='type', default='G', binds='T', doc='type of dX; without it the type of an `out` array for dX, else that of dY'),},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (33,)}),
            Example(axes={'rows': (4,), 'columns': (3, 5, 7)}),
            Example(axes={'rows': (2, 3, 4), 'columns': (1,)}, attributes={'axis': 3}),
            Example(axes={'rows': (), 'columns': (8, 16)}, attributes={'axis': 0}),),
        benchmarks=(
            Example(axes={'rows': (16384,), 'columns': (4096,)}),
            Example(axes={'rows': (98304,), 'columns': (512,)}),
            Example(axes={'rows': (6144,), 'columns': (6144,)}),
            Example(axes={'rows': (8192,), 'columns': (32000,)}),
            Example(axes={'rows': (50000,), 'columns': (1001,)}),),),
    'LogSoftmaxGrad_13': Operator(
        domain='com.microsoft',
        since_version=1,
        family='softmax',
        doc='Gradient of the logarithm of softmax over one dimension.',
        types={'G': "the forward pass's output and its gradient", 'T': "gradient of the forward pass's input"},
        combinations=(
            {'G': 'float32', 'T': 'float32'},
            {'G': 'float64', 'T': 'float64'},
            {'G': 'float16', 'T': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16'},
            {'G': 'float32', 'T': 'float16'},
            {'G': 'float32', 'T': 'bfloat16'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, least=1, begins_at='axis'),},
        inputs=(
            Input(name='dY', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='G', shape=('rows', 'columns'), doc='logarithms of the probabilities: output of the forward pass'),),
        outputs=(
            Output(name='dX', type='T', like='X', doc='gradient of the input'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='X', doc='the dimension'),
            'dX_type': Attribute(type='type', default='G', binds='T', doc='type of dX; without it the type of an `out` array for dX, else that of dY'),},
        in_place=(
            {'dY': 'dX'},
            {'X': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (33,)}),
            Example(axes={'rows': (4,), 'columns': (5, 7, 3)}, attributes={'axis': 1}),
            Example(axes={'rows': (2, 3, 4), 'columns': (1,)}),
            Example(axes={'rows': (), 'columns': (9, 16)}, attributes={'axis': 0}),),
        benchmarks=(
            Example(axes={'rows': (16384,), 'columns': (4096,)}),
            Example(axes={'rows': (98304,), 'columns': (512,)}),
            Example(axes={'rows': (6144,), 'columns': (6144,)}),
            Example(axes={'rows': (16,), 'columns': (21, 512, 512)}, attributes={'axis': 1}),
            Example(axes={'rows': (64,), 'columns': (256, 4096)}, attributes={'axis': 1}),),),
    'SimplifiedLayerNormalization': Operator(
        domain='ai.onnx',
        since_version=1,
        family='layer_norm',
        doc='Root-mean-square normalization (RMSNorm) over the dimensions from `axis` on, with the statistic that SimplifiedLayerNormalizationGrad takes.',
        types={'T': 'input', 'G': 'output; the type of T or of V', 'U': 'statistics; float64 where the others are, else float32', 'V': 'scale and bias'},
        combinations=(
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'G': 'float64', 'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float16', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'bfloat16', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, begins_at='axis'),},
        inputs=(
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input'),
            Input(name='scale', type='V', shape=('columns',), also=((Flat(flat='columns'),),), doc='scale of each column'),),
        outputs=(
            Output(name='Y', type='G', like='X', optional=True, doc='X * inv_std_var * scale'),
            Output(name='inv_std_var', type='U', shape=('rows', Ones(ones='columns')), optional=True, doc='1 / sqrt(mean of squares + epsilon) of each row; 0 of a row of nothing'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='X', doc='first normalized dimension'),
            'epsilon': Attribute(type='float', default=1e-05, minimum=0, doc='added to the variance'),
            'stash_type': Attribute(type='int', default=1, allowed=(1,), doc="ONNX's number of the statistics' type; 1 is float32"),
            'Y_type': Attribute(type='type', default='V', binds='G', doc='type of Y; without it the type of an `out` array for Y, else that of V'),},
        in_place=(
            {'X': 'Y'},),
        providers={'cuda': ('cuda.forward.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (40,)}),
            Example(axes={'rows': (3, 5), 'columns': (4, 33)}, attributes={'axis': 2}),
            Example(axes={'rows': (), 'columns': (7, 9)}, attributes={'axis': 0}),
            Example(axes={'rows': (300,), 'columns': (3,)}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': (1024,)}),
            Example(axes={'rows': (8192,), 'columns': (4096,)}),
            Example(axes={'rows': (65536,), 'columns': (768,)}),
            Example(axes={'rows': (16384,), 'columns': (4096,)}),),),
    'SimplifiedLayerNormalizationGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='layer_norm',
        doc='Gradient of root-mean-square normalization (RMSNorm) over the dimensions from `axis` on.',
        types={'G': 'gradient of the output; the type of T or of V', 'T': 'input and its gradient', 'U': 'saved statistics', 'V': 'scale, and the gradients of scale and bias'},
        combinations=(
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'G': 'float64', 'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float16', 'T': 'float32', 'U': 'float32', 'V': 'float16'},
            {'G': 'float32', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'bfloat16', 'T': 'float32', 'U': 'float32', 'V': 'bfloat16'},
            {'G': 'float16', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'G': 'bfloat16', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},
            {'G': 'float32', 'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, begins_at='axis'),},
        inputs=(
            Input(name='Y_grad', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='X', type='T', shape=('rows', 'columns'), doc='input of the forward pass'),
            Input(name='scale', type='V', shape=('columns',), also=((Flat(flat='columns'),),), doc='scale of each column'),
            Input(name='inv_std_var', type='U', shape=('rows',), also=(('rows', Ones(ones='columns')), (Flat(flat='rows'),)), values='positive', doc='1 / sqrt(mean of squares + epsilon) of each row'),
            Input(name='residual_grad', type='T', shape=('rows', 'columns'), optional=True, default=False, doc='added to X_grad: the gradient that comes to X past the norm, as to the sum of a skip form'),),
        outputs=(
            Output(name='X_grad', type='T', like='X', optional=True, doc='gradient of X'),
            Output(name='scale_grad', type='V', like='scale', optional=True, doc='gradient of scale'),
            Output(name='X_grad_sum', type='V', like='scale', optional=True, default=False, appended=True, doc='sum of X_grad over rows, unrounded: the gradient of a bias that is added to X'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='X', doc='first normalized dimension'),},
        in_place=(
            {'Y_grad': 'X_grad'},
            {'X': 'X_grad'},
            {'residual_grad': 'X_grad'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (40,)}),
            Example(axes={'rows': (3, 5), 'columns': (4, 33)}, attributes={'axis': 2}),
            Example(axes={'rows': (), 'columns': (7, 9)}, attributes={'axis': 0}),
            Example(axes={'rows': (300,), 'columns': (3,)}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': (1024,)}),
            Example(axes={'rows': (8192,), 'columns': (4096,)}),
            Example(axes={'rows': (65536,), 'columns': (768,)}),
            Example(axes={'rows': (16384,), 'columns': (4096,)}),),),
    'SkipLayerNormalization': Operator(
        domain='com.microsoft',
        since_version=1,
        family='layer_norm',
        doc='Layer normalization over the last dimension of `input` + `skip` + `bias`, a sum that is given out, too; its gradient is LayerNormalizationGrad, whose X is that sum.',
        types={'T': 'data', 'U': 'statistics; float64 where the others are, else float32', 'V': 'gamma, beta and bias'},
        combinations=(
            {'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='input', type='T', shape=('rows', 'columns'), doc='data'),
            Input(name='skip', type='T', shape=('rows', 'columns'), doc='what is added to it'),
            Input(name='gamma', type='V', shape=('columns',), doc='scale of each column'),
            Input(name='beta', type='V', shape=('columns',), optional=True, doc='bias of each column of the output; 0 if it is not given'),
            Input(name='bias', type='V', shape=('columns',), optional=True, default=False, doc='what is added to each column of the input; 0 if it is not given'),),
        outputs=(
            Output(name='output', type='T', like='input', optional=True, doc='(sum - mean) * inv_std_var * gamma + beta'),
            Output(name='mean', type='U', shape=('rows',), optional=True, doc='mean of each row of the sum; 0 of a row of nothing'),
            Output(name='inv_std_var', type='U', shape=('rows',), optional=True, doc='1 / sqrt(variance + epsilon) of each row of the sum; 0 of a row of nothing'),
            Output(name='input_skip_bias_sum', type='T', like='input', optional=True, doc='input + skip + bias, rounded to T; the rest is of this rounded sum'),),
        attributes={
            'epsilon': Attribute(type='float', default=1e-12, minimum=0, doc='added to the variance'),},
        in_place=(
            {'input': 'output'},
            {'skip': 'output'},
            {'input': 'input_skip_bias_sum'},
            {'skip': 'input_skip_bias_sum'},),
        providers={'cuda': ('cuda.forward.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (3, 5), 'columns': 33}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (), 'columns': 17}, attributes={'epsilon': 1e-05}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (65536,), 'columns': 768}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (16384,), 'columns': 1024}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (16384,), 'columns': 4096}, attributes={'epsilon': 1e-05}),),),
    'SkipSimplifiedLayerNormalization': Operator(
        domain='com.microsoft',
        since_version=1,
        family='layer_norm',
        doc='Root-mean-square normalization (RMSNorm) over the last dimension of `input` + `skip` + `bias`, a sum that is given out, too; its gradient is SimplifiedLayerNormalizationGrad, whose X is that sum.',
        types={'T': 'data', 'U': 'statistics; float64 where the others are, else float32', 'V': 'gamma, beta and bias'},
        combinations=(
            {'T': 'float32', 'U': 'float32', 'V': 'float32'},
            {'T': 'float64', 'U': 'float64', 'V': 'float64'},
            {'T': 'float16', 'U': 'float32', 'V': 'float16'},
            {'T': 'float16', 'U': 'float32', 'V': 'float32'},
            {'T': 'bfloat16', 'U': 'float32', 'V': 'bfloat16'},
            {'T': 'bfloat16', 'U': 'float32', 'V': 'float32'},),
        axes={
            'rows': Axis(doc='all dimensions but the last', group=True),
            'columns': Axis(doc='last dimension'),},
        inputs=(
            Input(name='input', type='T', shape=('rows', 'columns'), doc='data'),
            Input(name='skip', type='T', shape=('rows', 'columns'), doc='what is added to it'),
            Input(name='gamma', type='V', shape=('columns',), doc='scale of each column'),
            Input(name='bias', type='V', shape=('columns',), optional=True, default=False, doc='what is added to each column of the input; 0 if it is not given'),),
        outputs=(
            Output(name='output', type='T', like='input', optional=True, doc='sum * inv_std_var * gamma'),
            Output(name='inv_std_var', type='U', shape=('rows',), optional=True, doc='1 / sqrt(mean of squares + epsilon) of each row of the sum; 0 of a row of nothing'),
            Output(name='input_skip_bias_sum', type='T', like='input', optional=True, doc='input + skip + bias, rounded to T; the rest is of this rounded sum'),),
        attributes={
            'epsilon': Attribute(type='float', default=1e-12, minimum=0, doc='added to the variance'),},
        in_place=(
            {'input': 'output'},
            {'skip': 'output'},
            {'input': 'input_skip_bias_sum'},
            {'skip': 'input_skip_bias_sum'},),
        providers={'cuda': ('cuda.forward.plan',), 'cpu': ('cpu_forward',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': 40}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (3, 5), 'columns': 33}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (), 'columns': 17}, attributes={'epsilon': 1e-05}),),
        benchmarks=(
            Example(axes={'rows': (4096,), 'columns': 1024}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (65536,), 'columns': 768}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (16384,), 'columns': 1024}, attributes={'epsilon': 1e-05}),
            Example(axes={'rows': (16384,), 'columns': 4096}, attributes={'epsilon': 1e-05}),),),
    'SoftmaxGrad': Operator(
        domain='com.microsoft',
        since_version=1,
        family='softmax',
        doc='Gradient of softmax as ONNX had it before version 13, over all dimensions from `axis` on.',
        types={'G': "the forward pass's output and its gradient", 'T': "gradient of the forward pass's input"},
        combinations=(
            {'G': 'float32', 'T': 'float32'},
            {'G': 'float64', 'T': 'float64'},
            {'G': 'float16', 'T': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16'},
            {'G': 'float32', 'T': 'float16'},
            {'G': 'float32', 'T': 'bfloat16'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, least=1, begins_at='axis'),},
        inputs=(
            Input(name='dY', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='Y', type='G', shape=('rows', 'columns'), doc='probabilities: output of the forward pass'),),
        outputs=(
            Output(name='dX', type='T', like='Y', doc='gradient of the input'),),
        attributes={
            'axis': Attribute(type='int', default=1, axis_of='Y', doc='first dimension of a row'),
            'dX_type': Attribute(type='type', default='G', binds='T', doc='type of dX; without it the type of an `out` array for dX, else that of dY'),},
        in_place=(
            {'dY': 'dX'},
            {'Y': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (33,)}),
            Example(axes={'rows': (4,), 'columns': (3, 5, 7)}),
            Example(axes={'rows': (2, 3, 4), 'columns': (1,)}, attributes={'axis': 3}),
            Example(axes={'rows': (), 'columns': (8, 16)}, attributes={'axis': 0}),),
        benchmarks=(
            Example(axes={'rows': (16384,), 'columns': (4096,)}),
            Example(axes={'rows': (98304,), 'columns': (512,)}),
            Example(axes={'rows': (6144,), 'columns': (6144,)}),
            Example(axes={'rows': (8192,), 'columns': (32000,)}),
            Example(axes={'rows': (50000,), 'columns': (1001,)}),),),
    'SoftmaxGrad_13': Operator(
        domain='com.microsoft',
        since_version=1,
        family='softmax',
        doc='Gradient of softmax over one dimension.',
        types={'G': "the forward pass's output and its gradient", 'T': "gradient of the forward pass's input"},
        combinations=(
            {'G': 'float32', 'T': 'float32'},
            {'G': 'float64', 'T': 'float64'},
            {'G': 'float16', 'T': 'float16'},
            {'G': 'bfloat16', 'T': 'bfloat16'},
            {'G': 'float32', 'T': 'float16'},
            {'G': 'float32', 'T': 'bfloat16'},),
        axes={
            'rows': Axis(doc='dimensions before `axis`', group=True),
            'columns': Axis(doc='dimensions from `axis` on', group=True, least=1, begins_at='axis'),},
        inputs=(
            Input(name='dY', type='G', shape=('rows', 'columns'), doc='gradient of the output'),
            Input(name='Y', type='G', shape=('rows', 'columns'), doc='probabilities: output of the forward pass'),),
        outputs=(
            Output(name='dX', type='T', like='Y', doc='gradient of the input'),),
        attributes={
            'axis': Attribute(type='int', default=-1, axis_of='Y', doc='the dimension'),
            'dX_type': Attribute(type='type', default='G', binds='T', doc='type of dX; without it the type of an `out` array for dX, else that of dY'),},
        in_place=(
            {'dY': 'dX'},
            {'Y': 'dX'},),
        providers={'cuda': ('cuda.plan',), 'cpu': ('cpu',)},
        examples=(
            Example(axes={'rows': (6,), 'columns': (33,)}),
            Example(axes={'rows': (4,), 'columns': (5, 7, 3)}, attributes={'axis': 1}),
            Example(axes={'rows': (2, 3, 4), 'columns': (1,)}),
            Example(axes={'rows': (), 'columns': (9, 16)}, attributes={'axis': 0}),),
        benchmarks=(
            Example(axes={'rows': (16384,), 'columns': (4096,)}),
            Example(axes={'rows': (98304,), 'columns': (512,)}),
            Example(axes={'rows': (6144,), 'columns': (6144,)}),
            Example(axes={'rows': (16,), 'columns': (21, 512, 512)}, attributes={'axis': 1}),
            Example(axes={'rows': (64,), 'columns': (256, 4096)}, attributes={'axis': 1}),),),}
