def summarise(lines, notes):
    return notes


def spoken(numbers, names):
    return []


def publish(numbers):
    return []
