"""A pull condition for strategies.yaml."""


def not_too_far(pull, view):
    """SSP that compares with the median worker, not with the slowest: half may lag behind."""
    return view.count(pull.iteration - 3) >= view.live / 2
