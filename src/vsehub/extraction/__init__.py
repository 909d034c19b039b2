"""Features of a data set's pictures, extracted once and written in the layout of VSE++ and SCAN."""
