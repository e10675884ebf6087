"""What Kafka's own command line tools print of the offsets topic and of groups, as input."""
