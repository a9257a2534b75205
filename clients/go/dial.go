package tether

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strconv"
	"time"

	"tether/internal/core"
	"tether/internal/resp"
)

// How often a replica may refer to another server (P-CONN-5).
const maxHops = 2

// How long a silent address of a name keeps the next one waiting, at most.
const longestMoment = 300 * time.Millisecond

// A wire is a connection that was greeted.
type wire struct {
	net.Conn
	from *resp.Reader
	stop func() bool // Ends that the context of the greeting ends the connection.
	to   address     // Where it leads to.
}

// A dialer finds the master and greets it.
type dialer struct {
	addresses        []address
	sentinels        []string
	master           string
	sentinelUser     string
	sentinelPassword string
	tls              *tls.Config
	name             string
}

// dial opens a connection to the master. It tries all addresses, and follows replicas to their master.
func (d *dialer) dial(ctx context.Context) (*wire, *core.Error) {
	addresses := d.addresses
	if len(d.sentinels) > 0 {
		at, err := d.askSentinels(ctx)
		if err != nil {
			return nil, err
		}
		addresses = []address{d.addresses[0].elsewhere(at)}
	}
	until, _ := ctx.Deadline()
	return d.try(ctx, until, addresses)
}

// try goes to one after the other. Each has its share of what is left of the time, since a silent server must not hide those after it.
func (d *dialer) try(ctx context.Context, until time.Time, addresses []address) (*wire, *core.Error) {
	var first *core.Error
	for at, each := range addresses {
		share := time.Until(until) / time.Duration(len(addresses)-at)
		connection, err := d.followWithin(ctx, share, each)
		if err == nil {
			return connection, nil
		}
		if first == nil || err.Code == "REPLICA" {
			first = err
		}
		if err.Name != core.Unreachable {
			return nil, err
		}
	}
	return nil, first
}

// elsewhere is another host, with all else as it is.
func (a address) elsewhere(at string) address {
	a.network, a.at = "tcp", at
	return a
}

// followWithin bounds the greeting by that time, and what follows on the connection by ctx.
func (d *dialer) followWithin(ctx context.Context, within time.Duration, at address) (*wire, *core.Error) {
	greeting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	connection, err := d.follow(greeting, at)
	if err != nil {
		return nil, err
	}
	if !connection.ready() {
		connection.Close()
		return nil, unreachable(at.at, context.Cause(greeting))
	}
	connection.endWith(ctx)
	return connection, nil
}

// follow goes to the master, if this server is a replica.
func (d *dialer) follow(ctx context.Context, at address) (*wire, *core.Error) {
	replica := &core.Error{Name: core.Unreachable, Code: "REPLICA", Text: "no master behind the replica " + at.at}
	for range maxHops + 1 {
		connection, role, err := d.greet(ctx, at)
		if err != nil {
			return nil, err
		}
		if role == "master" {
			return connection, nil
		}
		reply, failed := connection.ask("ROLE")
		connection.Close()
		if failed != nil || len(reply.Items) < 3 || reply.Items[1].Str == "" {
			return nil, replica
		}
		at = at.elsewhere(net.JoinHostPort(reply.Items[1].Str, strconv.FormatInt(reply.Items[2].Int, 10)))
	}
	return nil, replica
}

// greet opens a connection to one server: HELLO, CLIENT SETNAME, SELECT (P-CONN-2). It gives the server's role.
func (d *dialer) greet(ctx context.Context, at address) (*wire, string, *core.Error) {
	connection, err := d.open(ctx, at)
	if err != nil {
		return nil, "", err
	}
	hello := []string{"HELLO", "3"}
	if at.password != "" || at.user != "" {
		user := at.user
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, at.password)
	}
	commands := [][]string{hello, {"CLIENT", "SETNAME", d.name}}
	if at.database != 0 {
		commands = append(commands, []string{"SELECT", strconv.Itoa(at.database)})
	}
	replies, failed := connection.askAll(commands)
	if failed != nil {
		connection.Close()
		return nil, "", unreachable(at.at, failed)
	}
	for number, reply := range replies {
		if reply.Kind == resp.Error && number != 1 { // The name may be refused.
			connection.Close()
			return nil, "", core.GreetingError(reply)
		}
	}
	role := replies[0].Get("role").Str
	if role == "" || role == "primary" {
		role = "master"
	}
	return connection, role, nil
}

// open connects, within the time of ctx, which also bounds what is asked before `ready`.
func (d *dialer) open(ctx context.Context, at address) (*wire, *core.Error) {
	connection, err := connect(ctx, at)
	if err != nil {
		return nil, unreachable(at.at, err)
	}
	if at.isTLS {
		secured := tls.Client(connection, d.tlsOf(at))
		if err := secured.HandshakeContext(ctx); err != nil {
			connection.Close()
			return nil, tlsError(at.at, err)
		}
		connection = secured
	}
	opened := &wire{Conn: connection, from: resp.NewReader(connection), to: at}
	opened.endWith(ctx)
	return opened, nil
}

// connect gives the connection to that address of a name which answers first. It tries the next one when one fails or is silent for a
// moment, so that all have a share of the time (P-CONN-9). net.Dialer would give each two seconds at least, which a short fence has not.
func connect(ctx context.Context, to address) (net.Conn, error) {
	var plain net.Dialer // Go's sockets are close-on-exec (P-FORK-2).
	if to.network == "unix" {
		return plain.DialContext(ctx, to.network, to.at)
	}
	host, port, err := net.SplitHostPort(to.at)
	if err != nil {
		return nil, err
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	moment := longestMoment
	if until, is := ctx.Deadline(); is {
		moment = min(moment, time.Until(until)/time.Duration(len(found)))
	}
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	connected, failures := make(chan net.Conn), make(chan error, len(found))
	try := func(at string) {
		connection, err := plain.DialContext(trying, to.network, at)
		if err == nil {
			select {
			case connected <- connection:
				return
			case <-trying.Done(): // Another one was first, or it is too late.
				connection.Close()
				err = context.Cause(trying)
			}
		}
		failures <- err
	}
	for begun, failed := 0, 0; failed < len(found); {
		var next <-chan time.Time
		if begun < len(found) {
			go try(net.JoinHostPort(found[begun], port))
			begun++
			next = time.After(moment)
		}
		select {
		case connection := <-connected:
			return connection, nil
		case err = <-failures:
			failed++
		case <-next:
		}
	}
	return nil, err
}

// tlsOf has the name of the host in it, also of a master that the client was referred to (P-CONN-8).
func (d *dialer) tlsOf(at address) *tls.Config {
	config := d.tls.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(at.at)
	}
	return config
}

func tlsError(at string, err error) *core.Error {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	if errors.As(err, &verification) || errors.As(err, &authority) {
		return &core.Error{Name: core.Refused, Code: "TLS", Text: err.Error()}
	}
	return unreachable(at, err)
}

// unreachable says which server was tried, and why in vain.
func unreachable(at string, err error) *core.Error {
	var failed *net.OpError // It names the addresses of its socket, too.
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return &core.Error{Name: core.Unreachable, Code: "UNREACHABLE", Text: at + ": " + err.Error()}
}

func (w *wire) ask(words ...string) (resp.Value, error) {
	replies, err := w.askAll([][]string{words})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], nil
}

func (w *wire) askAll(commands [][]string) ([]resp.Value, error) {
	var out []byte
	for _, words := range commands {
		out = resp.Append(out, words)
	}
	if _, err := w.Write(out); err != nil {
		return nil, err
	}
	replies := make([]resp.Value, len(commands))
	for number := range replies {
		reply, err := w.from.Read()
		for err == nil && reply.Kind == resp.Push {
			reply, err = w.from.Read()
		}
		if err != nil {
			return nil, err
		}
		replies[number] = reply
	}
	return replies, nil
}

// endWith has nothing be read or written once this context is over.
func (w *wire) endWith(ctx context.Context) {
	w.stop = context.AfterFunc(ctx, func() { w.SetDeadline(time.Unix(1, 0)) })
}

// ready says that the greeting is over: its context ends nothing any more. False if it was too late.
func (w *wire) ready() bool { return w.stop() }

// Close closes the connection.
func (w *wire) Close() error {
	w.stop()
	return w.Conn.Close()
}

// askSentinels asks all of them at once. More than half must name the same address; if fewer answer, the address named most
// often is taken (P-CONN-7). Its role is checked by who connects there.
func (d *dialer) askSentinels(ctx context.Context) (string, *core.Error) {
	within := 2 * time.Second
	if deadline, is := ctx.Deadline(); is { // The master is greeted in the other half.
		within = min(within, time.Until(deadline)/2)
	}
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	named := make(chan string, len(d.sentinels))
	for _, at := range d.sentinels {
		go func() { named <- d.askSentinel(asking, at) }()
	}
	votes, best := map[string]int{}, ""
	for range d.sentinels {
		at := <-named
		if at == "" {
			continue
		}
		votes[at]++
		if best == "" || votes[at] > votes[best] {
			best = at
		}
		if 2*votes[at] > len(d.sentinels) {
			break
		}
	}
	if best == "" {
		return "", &core.Error{Name: core.Unreachable, Code: "UNREACHABLE", Text: "no Sentinel names the master " + d.master}
	}
	return best, nil
}

// askSentinel is the address that one of them names, or empty.
func (d *dialer) askSentinel(ctx context.Context, at string) string {
	where := address{network: "tcp", at: at, user: d.sentinelUser, password: d.sentinelPassword, isTLS: d.addresses[0].isTLS}
	connection, err := d.open(ctx, where)
	if err != nil {
		return ""
	}
	defer connection.Close()
	var commands [][]string
	if where.password != "" {
		login := []string{"AUTH"}
		if where.user != "" {
			login = append(login, where.user)
		}
		commands = append(commands, append(login, where.password))
	}
	commands = append(commands, []string{"SENTINEL", "get-master-addr-by-name", d.master})
	replies, failed := connection.askAll(commands)
	if failed != nil {
		return ""
	}
	if named := replies[len(replies)-1].Items; len(named) >= 2 {
		return net.JoinHostPort(named[0].Str, named[1].Str)
	}
	return ""
}
