"""A pull condition of one's own; see strategies.yaml."""


def not_too_far(pull, view):
    """SSP that looks at the median worker, not at the slowest: half of all may lag behind."""
    return view.count(pull.iteration - 3) >= view.live / 2
