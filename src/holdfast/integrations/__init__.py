"""holdfast in the clothes of other packages: each module needs the package that it is named after."""
