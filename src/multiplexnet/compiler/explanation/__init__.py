"""What rules mean and what is wrong with them, found with z3 and told in words."""
