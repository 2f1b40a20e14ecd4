"""What a user can choose, checked where it is written down; nothing here imports torch.

``hma COMMAND --help`` needs these modules and no others.
"""
