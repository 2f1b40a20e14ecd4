"""A board that shows nothing and remembers how cells ended."""


class Silence:
    def __init__(self):
        self.ends = []

    def begin(self, cells, waiting):
        self.counts = (cells, waiting)

    def started(self, cell):
        pass

    def moved(self, event):
        pass

    def ended(self, event):
        self.ends.append((event.cell.method, event.cell.task, event.end))

    def say(self, message):
        pass

    def close(self):
        self.closed = True
