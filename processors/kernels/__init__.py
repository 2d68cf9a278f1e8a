"""Operations with several implementations (PyTorch, NumPy, Triton) and functions that choose one."""
