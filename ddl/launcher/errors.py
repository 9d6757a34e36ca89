"""The exceptions that end ddlrun, with their exit statuses."""


class UsageError(Exception):
    """The command line or an environment variable is wrong."""

    status = 2


class LaunchError(Exception):
    """The job cannot be started."""

    status = 1


class Interrupted(Exception):
    """A signal ended ddlrun while no job was running."""

    def __init__(self, signal_number):
        super().__init__(f"ended by signal {signal_number}; no job was running")
        self.number = signal_number
        self.status = 128 + signal_number
