"""A block, and the output head with the loss, as one operation each: a step on a CPU.

Between two products autograd would start a dozen small operations, each with a cast before and after it. Here
each block is a single node with its backward pass written out, by `gptwright.kernels`; products are torch's
where the CPU has no instruction that ours are made for. Under autocast to bfloat16 what is computed is what
that would compute: the residual stream, norms' statistics and weights' gradients in float32 and everything
that is multiplied in bfloat16; scores of attention, and gradients of weights before their sum over tokens
ends, are never rounded. Without autocast everything is float32.
"""
