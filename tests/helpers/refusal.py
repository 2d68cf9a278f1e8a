"""What a function says when it refuses its arguments, for loops over wrong cases."""


def refusal(error, function, *args, **kwargs):
    """The message of the `error` that `function(*args, **kwargs)` raises; "" if it raises none."""
    try:
        function(*args, **kwargs)
    except error as raised:
        return str(raised) or repr(raised)
    return ""
