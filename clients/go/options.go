package tether

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options are the settings of a [Locks]. The zero value is good for most.
type Options struct {
	// Grace, if not 0, starts a session: the server keeps the locks for that long without a connection, so that they survive a
	// break, a restart (with files) and a failover. Without one, the locks end with the connection.
	Grace time.Duration
	// StopWithin is how long the work goes on after a loss. The client finds a loss that much earlier.
	StopWithin time.Duration
	// Fence, if not 0, is how long one answer of the server vouches for the locks, and less than would be possible: with a session
	// the grace less StopWithin and a second, without one at most half of the server's tether.peer-timeout.
	Fence time.Duration

	// Addresses are further servers, as URLs, of which one may be the master. User, password and database are those of each. They are tried
	// in turn, and share the time to connect (5 s; of a session that is resumed, half of its fence). In a cluster they are further nodes,
	// which the client begins with, and asks where a slot is.
	Addresses []string
	// Sentinels are host:port; then Master is the name that they know the master by, and the URL says how to log in there.
	Sentinels []string
	// Master is the name of the master, for Sentinels.
	Master string
	// SentinelUser and SentinelPassword are for Sentinels that want them.
	SentinelUser, SentinelPassword string
	// Cluster says that the server is a node of a cluster. Then there is a connection, and with a Grace a session, for each master that
	// a lock is at.
	Cluster bool

	// TLS is the configuration for rediss URLs. The certificate must be that of the host, unless it says otherwise.
	TLS *tls.Config
	// Name is the connection's name; `tether:<host>:<pid>:<program>` if empty.
	Name string
	// Logger hears of connections and losses. Nil: nobody does.
	Logger *slog.Logger
	// Observer is called for each [Notice], one after the other, by a goroutine of its own. It must not block for long: what it
	// has not taken is kept.
	Observer func(Notice)
}

// An address is where a server may be, and how to log in there.
type address struct {
	network, at    string // As net.Dial takes them.
	user, password string
	database       int
	isTLS          bool
}

var (
	errAddress  = errors.New("tether: the address must be redis://, rediss:// or unix://, as in redis://user:password@host:6379/0")
	errDatabase = errors.New("tether: the database must be a number, as in redis://host:6379/0 or unix:///path?db=0")
)

// parseAddress reads a URL. Its errors do not contain it, since it may have a password (P-ERR-3).
func parseAddress(text string) (address, error) {
	parts, err := url.Parse(text)
	if err != nil || parts.Fragment != "" || (parts.RawQuery != "" && parts.Scheme != "unix") {
		return address{}, errAddress
	}
	found := address{network: "tcp", user: parts.User.Username()}
	found.password, _ = parts.User.Password()
	database := strings.Trim(parts.Path, "/")
	switch parts.Scheme {
	case "unix":
		query, names := strings.CutPrefix(parts.RawQuery, "db=")
		if parts.Path == "" || (query != "" && !names) {
			return address{}, errAddress
		}
		found.network, found.at, database = "unix", parts.Path, query
	case "rediss", "valkeys":
		found.at, found.isTLS = hostAndPort(parts), true
	case "redis", "valkey":
		found.at = hostAndPort(parts)
	default:
		return address{}, errAddress
	}
	if database != "" {
		if found.database, err = strconv.Atoi(database); err != nil || found.database < 0 {
			return address{}, errDatabase
		}
	}
	return found, nil
}

func hostAndPort(parts *url.URL) string {
	host, port := parts.Hostname(), parts.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	return net.JoinHostPort(host, port)
}

// P-CONN-3
func connectionName(given string) string {
	if given == "" {
		host, _ := os.Hostname()
		given = fmt.Sprintf("tether:%s:%d:%s", host, os.Getpid(), filepath.Base(os.Args[0]))
	}
	name := []byte(given[:min(200, len(given))])
	for at, each := range name {
		if each < '!' || each > '~' {
			name[at] = '_'
		}
	}
	return string(name)
}

func (o *Options) validate() error {
	for name, each := range map[string]time.Duration{"Grace": o.Grace, "StopWithin": o.StopWithin, "Fence": o.Fence} {
		if each < 0 {
			return fmt.Errorf("tether: Options.%s must not be negative", name)
		}
	}
	if (len(o.Sentinels) > 0) != (o.Master != "") {
		return errors.New("tether: Options.Sentinels and Options.Master belong together")
	}
	if o.Cluster && o.Master != "" {
		return errors.New("tether: Options.Cluster and Options.Master exclude each other")
	}
	return nil
}
