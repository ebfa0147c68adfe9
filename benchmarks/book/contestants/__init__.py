"""What is measured. A contestant sets its problem up and returns the function that is timed, which returns numbers for JSON."""
