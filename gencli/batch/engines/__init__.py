"""What runs the rows of a batch: this process, or workers in processes and on machines of their own."""
