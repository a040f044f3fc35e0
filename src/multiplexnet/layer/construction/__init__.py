"""How a layer is made: from rules and settings to compiled terms, a layout of its blocks, and maps."""
