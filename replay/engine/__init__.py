"""Time: the loop, what a policy sees and answers, and the books."""
