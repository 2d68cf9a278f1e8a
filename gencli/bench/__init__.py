"""What `gencli bench` measures. Every figure is a ratio, or stands beside what it is compared with."""
