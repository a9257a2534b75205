module tether/gocron

go 1.24.0

replace tether => ../

require (
	github.com/go-co-op/gocron/v2 v2.19.1
	tether v0.2.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	golang.org/x/sys v0.37.0 // indirect
)
