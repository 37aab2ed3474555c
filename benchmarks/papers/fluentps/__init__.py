"""FluentPS: parameter servers that each synchronize on their own conditions."""
