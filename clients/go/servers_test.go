package tether_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tether"
	"tether/tethertest"
)

// certificate writes a certificate of this host and its key, signed by itself.
func certificate(t *testing.T, folder, host string) *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	data, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cert.pem", "CERTIFICATE", data)
	write("key.pem", "PRIVATE KEY", secret)
	parsed, err := x509.ParseCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// A listener with TLS in front of a server, as a proxy of a cloud is: not every server is built with TLS.
func secured(t *testing.T, server *tethertest.Server, host string) (string, *x509.CertPool) {
	folder := t.TempDir()
	pool := certificate(t, folder, host)
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("tcp", server.Address)
				if err != nil {
					return
				}
				defer far.Close()
				go pipe(far, near)
				pipe(near, far)
			}()
		}
	}()
	return "rediss://" + listener.Addr().String(), pool
}

func pipe(to, from net.Conn) {
	defer to.Close()
	data := make([]byte, 1<<16)
	for {
		size, err := from.Read(data)
		if err != nil {
			return
		}
		if _, err := to.Write(data[:size]); err != nil {
			return
		}
	}
}

func TestTLSChecksChainAndHost(t *testing.T) {
	server := tethertest.Start(t)
	right, pool := secured(t, server, "127.0.0.1")
	other, otherPool := secured(t, server, "elsewhere.example")
	acquire(t, open(t, right, &tether.Options{TLS: &tls.Config{RootCAs: pool}}).Lock("k"))
	for _, each := range []struct {
		url  string
		pool *x509.CertPool
	}{{right, nil}, {other, otherPool}} {
		locks := open(t, each.url, &tether.Options{TLS: &tls.Config{RootCAs: each.pool}})
		_, err := locks.Lock("l").Acquire(t.Context()) // It waits for ever, but for an error that is final.
		var refused *tether.Error
		if !errors.Is(err, tether.ErrRefused) || !errors.As(err, &refused) || refused.Code != "TLS" {
			t.Error(err)
		}
	}
}

func TestReplicaIsFollowedToItsMaster(t *testing.T) {
	master := tethertest.Start(t)
	host, port, _ := strings.Cut(master.Address, ":")
	replica := tethertest.Start(t, "--replicaof", host+" "+port)
	acquire(t, open(t, replica.URL, nil).Lock("k"))
	if isFree(master, "k") {
		t.Fatal("it is not held at the master")
	}
}

// The fence of a Unix socket is for what is reached by one, whatever the other addresses are (P-FENCE-1).
func TestFenceIsThatOfTheConnection(t *testing.T) {
	folder := t.TempDir()
	here, replica, nobody := "unix://"+folder+"/here", "unix://"+folder+"/replica", "unix://"+folder+"/nobody"
	master := tethertest.Start(t, "--tether.peer-timeout", "0", "--unixsocket", folder+"/here")
	tethertest.Start(t, "--unixsocket", folder+"/replica", "--replicaof", strings.Replace(master.Address, ":", " ", 1))
	for _, byTCP := range []*tether.Locks{
		open(t, replica, nil), open(t, nobody, &tether.Options{Addresses: []string{master.URL}}),
	} {
		if _, err := byTCP.Lock("k").TryAcquire(t.Context()); !errors.Is(err, tether.ErrUnfit) {
			t.Error(err)
		}
	}
	byUnix := open(t, "redis://127.0.0.1:1", &tether.Options{Addresses: []string{here}})
	if _, err := byUnix.Lock("l").TryAcquire(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that accepts and says nothing hides none of those after it.
func TestSilentAddressLeavesTimeForTheNext(t *testing.T) {
	server := tethertest.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	locks := open(t, "redis://"+silent.Addr().String(), &tether.Options{Addresses: []string{server.URL}})
	held, err := locks.Lock("k").TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.CheckServer(t.Context()); err != nil {
		t.Fatal("the connection ended with the greeting's time:", err)
	}
}

// An error names the server and the cause, whether the request waits or not.
func TestUnreachableSaysWhichServerAndWhy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	listener.Close()
	locks := open(t, "redis://"+at, nil)
	_, atOnce := locks.Lock("k").TryAcquire(t.Context())
	_, waiting := locks.Lock("k", tether.Wait(50*time.Millisecond)).Acquire(t.Context())
	for _, err := range []error{atOnce, waiting} {
		if said := fmt.Sprint(err); !errors.Is(err, tether.ErrUnreachable) || !strings.Contains(said, at+": connect: connection refused") {
			t.Error(said)
		}
	}
}

// lookUp has every name lead to these addresses, until the test is over.
func lookUp(t *testing.T, addresses ...string) {
	usual := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = usual })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go answer(far, addresses)
		return near, nil
	}}
}

// answer is a DNS server for one question, over a stream.
func answer(asks net.Conn, addresses []string) {
	defer asks.Close()
	size := make([]byte, 2)
	io.ReadFull(asks, size)
	query := make([]byte, binary.BigEndian.Uint16(size))
	io.ReadFull(asks, query)
	end := 12 + bytes.IndexByte(query[12:], 0) + 5
	reply := append(query[:2:2], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	reply = append(reply, query[12:end]...)
	if query[end-3] == 1 { // It asks for IPv4.
		reply[7] = byte(len(addresses))
		for _, each := range addresses {
			reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			reply = append(reply, net.ParseIP(each).To4()...)
		}
	}
	asks.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
}

// fill listens at this address with a queue that is full, so that the system drops what asks for a connection.
func fill(t *testing.T, at string) {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(number uintptr) { syscall.Listen(int(number), 0) }); err != nil {
		t.Fatal(err)
	}
	for {
		asks, err := net.DialTimeout("tcp", at, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { asks.Close() })
	}
}

// Also in the time that a short fence leaves (P-CONN-9).
func TestSilentAddressOfANameLeavesTimeForItsOthers(t *testing.T) {
	server := tethertest.Start(t, "--bind", "127.0.0.1")
	_, port, _ := net.SplitHostPort(server.Address)
	fill(t, "127.0.0.2:"+port)
	lookUp(t, "127.0.0.2", "127.0.0.1")
	locks := open(t, "redis://two.test:"+port, &tether.Options{Grace: 5 * time.Second}) // The fence is four seconds.
	held := acquire(t, locks.Lock("k"))
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	if err := held.CheckServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// One Sentinel of three does not answer, and one has another mind.
func TestSentinelsNameTheMaster(t *testing.T) {
	master, other := tethertest.Start(t), tethertest.Start(t)
	sentinel := func(of *tethertest.Server) string {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor main %s 2\n", strings.Replace(of.Address, ":", " ", 1))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return tethertest.Run(t, file, "--sentinel").Address
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, each := range []struct {
		sentinels []string
		is        *tethertest.Server
	}{
		{[]string{silent.Addr().String(), sentinel(master), sentinel(master)}, master},
		{[]string{sentinel(other), sentinel(master), sentinel(other)}, other},
	} {
		locks := open(t, "redis://unused", &tether.Options{Sentinels: each.sentinels, Master: "main"})
		held := acquire(t, locks.Lock("k"))
		if isFree(each.is, "k") {
			t.Error("it is held elsewhere")
		}
		held.Release(t.Context())
	}
}
