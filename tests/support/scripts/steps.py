"""The counter of steps that the other scripts in this folder use."""


class Steps:
    """Counts steps; a checkpoint keeps their number."""

    done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]
