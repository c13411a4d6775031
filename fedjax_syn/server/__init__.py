"""What several methods compute on the server with the models of the clients."""
