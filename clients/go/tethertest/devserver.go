package tethertest

import "time"

// DevServer is `tether devserver`: the module's engine in one process, without a Redis. Its levers bring about what is hard to bring
// about on a server. It has one user, no scripts, no files, no replicas and no cluster; after Restart it is empty.
type DevServer struct{ *Server }

// StartDevServer starts one with these options besides its port, as in "--peer-timeout", "2s". It ends with the test. The program is
// TETHER_PROGRAM, or tether on PATH.
func StartDevServer(t T, options ...string) *DevServer {
	t.Helper()
	return &DevServer{launch(t, "TETHER_PROGRAM", "tether", 10*time.Second, func(port string) []string {
		return append([]string{"devserver", "--port", port}, options...)
	})}
}

// Lose deletes the key: its holders lose it (deleted).
func (s *DevServer) Lose(key string) { s.pull("LOSE", key) }

// Drop ends all connections.
func (s *DevServer) Drop() { s.pull("DROP") }

// Silent has the server read and send nothing for that time, so that fences fall (silence).
func (s *DevServer) Silent(limit time.Duration) { s.pull("SILENT", limit.Milliseconds()) }

// Refuse has the server answer with an error of this code: to each write if it is NOREPLICAS, MISCONF or OOM, else to each command.
func (s *DevServer) Refuse(code string) { s.pull("REFUSE", code) }

// Accept ends Refuse.
func (s *DevServer) Accept() { s.pull("ACCEPT") }

// Demote makes the server a replica: all holds are lost (demoted), and it grants nothing.
func (s *DevServer) Demote() { s.pull("DEMOTE") }

// Promote makes it a master again.
func (s *DevServer) Promote() { s.pull("PROMOTE") }

// Advance sets the server's clock forward: leases, waits and graces end. The client's does not change.
func (s *DevServer) Advance(by time.Duration) { s.pull("ADVANCE", by.Milliseconds()) }

func (s *DevServer) pull(lever ...any) {
	s.t.Helper()
	s.Do(append([]any{"DEV"}, lever...)...)
}
