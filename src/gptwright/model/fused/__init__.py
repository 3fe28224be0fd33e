"""A block, and the output head with the loss, as one operation each: a step on a CPU in bfloat16.

Between two products autograd would start a dozen small operations, each with a cast before and after it. Here
each block is a single node with its backward pass written out: products by torch, everything between them by
`gptwright.kernels`. What is computed is what autocast would compute: the residual stream, norms' statistics
and weights' gradients in float32 and everything that is multiplied in bfloat16. Scores of attention are
rounded to bfloat16 before their softmax, which is taken in float32.
"""
