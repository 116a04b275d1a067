"""What logs look like from outside: pages, explanations, figures, repair."""
