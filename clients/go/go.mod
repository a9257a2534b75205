module tether

go 1.24
