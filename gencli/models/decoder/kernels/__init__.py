"""Steps of a layer that are one kernel each on CUDA, with the decoder's own code as reference."""
