"""From a decision to the next epoch: routers, gradual switch, pre-copy of state."""
