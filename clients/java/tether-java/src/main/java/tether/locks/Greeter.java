package tether.locks;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import javax.net.ssl.SSLSocketFactory;

/** Opens a connection to a master and greets on it (P-CONN-2). */
final class Greeter {
    /** A connection that was greeted, and what reads from it. */
    record Greeted(Address address, Wire wire, Resp resp) implements AutoCloseable {
        @Override
        public void close() {
            wire.close();
        }
    }

    /** No connection: why. */
    static final class RefusedException extends Exception {
        private static final long serialVersionUID = 1;

        final transient Problem problem;

        RefusedException(Problem problem) {
            super(problem.text());
            this.problem = problem;
        }
    }

    private static final int HOPS = 2;

    private final String name;
    private final SSLSocketFactory tls;
    private final boolean verifiesHost;

    Greeter(String name, SSLSocketFactory tls, boolean verifiesHost) {
        this.name = name;
        this.tls = tls;
        this.verifiesHost = verifiesHost;
    }

    /**
     * Tries these in turn. Opening and greeting take at most so many milliseconds each, for all of
     * them together (P-CONN-9).
     */
    Greeted greet(List<Address> addresses, double within) throws RefusedException {
        Problem last = Problem.UNREACHABLE;
        double share = within / Math.max(addresses.size(), 1);
        for (Address address : addresses) {
            try {
                return greetMaster(address, share);
            } catch (Wire.TlsException error) {
                throw new RefusedException(Problem.refused("TLS", error.getMessage()));
            } catch (IOException error) {
                last = Problem.unreachable("UNREACHABLE", address + ": " + cause(error));
            } catch (RefusedException error) {
                if (error.problem.isFinal()) {
                    throw error;
                }
                last = error.problem;
            }
        }
        throw new RefusedException(last);
    }

    private static String cause(IOException error) {
        return error instanceof UnknownHostException
                ? "unknown host" // Its message is the name alone.
                : Objects.requireNonNullElse(error.getMessage(), error.toString());
    }

    /** P-CONN-5: follows replicas to their master. */
    private Greeted greetMaster(Address first, double within) throws IOException, RefusedException {
        Address address = first;
        for (int hop = 0; hop <= HOPS; hop++) {
            Opened opened = open(address, within);
            boolean isKept = false;
            try {
                Object hello = greet(opened.wire, opened.resp, address);
                if (!(hello instanceof Map<?, ?> server) || !"replica".equals(server.get("role"))) {
                    opened.source.waitForEver();
                    isKept = true;
                    return new Greeted(address, opened.wire, opened.resp);
                }
                address = master(opened.wire, opened.resp, address);
            } finally {
                if (!isKept) {
                    opened.wire.close();
                }
            }
        }
        throw new RefusedException(Problem.unreachable("REPLICA", first + " leads to no master"));
    }

    /** Any server, whatever its role; each of its answers must come within so many milliseconds. */
    Greeted greetAny(Address address, double within) throws IOException, RefusedException {
        Opened opened = open(address, within);
        boolean isKept = false;
        try {
            greet(opened.wire, opened.resp, address);
            isKept = true;
            return new Greeted(address, opened.wire, opened.resp);
        } finally {
            if (!isKept) {
                opened.wire.close();
            }
        }
    }

    private record Opened(Wire wire, PatientSource source, Resp resp) {}

    private Opened open(Address address, double within) throws IOException {
        Wire wire = Wire.open(address, (int) Math.ceil(within), tls, verifiesHost);
        PatientSource source = new PatientSource(wire, within);
        return new Opened(wire, source, new Resp(source));
    }

    /** Reads until a moment, however the bytes are cut; later for ever. */
    private static final class PatientSource implements Resp.Source {
        private final Wire wire;
        private final long until;
        private boolean hasEnd = true;

        PatientSource(Wire wire, double within) {
            this.wire = wire;
            until = System.nanoTime() + (long) (within * 1e6);
        }

        void waitForEver() throws IOException {
            hasEnd = false;
            wire.setPatience(0);
        }

        @Override
        public int read(byte[] buffer) throws IOException {
            if (hasEnd) {
                long left = (until - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new SocketTimeoutException("no answer in time");
                }
                wire.setPatience((int) left);
            }
            return wire.read(buffer);
        }
    }

    /** What the server says of itself. */
    private Object greet(Wire wire, Resp resp, Address address)
            throws IOException, RefusedException {
        List<List<String>> words = new ArrayList<>();
        words.add(hello(address));
        words.add(List.of("CLIENT", "SETNAME", name));
        if (address.database() != 0) {
            words.add(List.of("SELECT", Integer.toString(address.database())));
        }
        wire.write(Resp.encode(words));
        Object hello = accepted(resp.read());
        resp.read(); // P-CONN-3: a name is no condition.
        if (address.database() != 0) {
            accepted(resp.read());
        }
        return hello;
    }

    private static List<String> hello(Address address) {
        List<String> words = new ArrayList<>(List.of("HELLO", "3"));
        if (address.password() != null) {
            String user = address.user() == null ? "default" : address.user();
            words.addAll(List.of("AUTH", Resp.bytesOf(user), Resp.bytesOf(address.password())));
        }
        return words;
    }

    private static Object accepted(Object reply) throws RefusedException {
        if (reply instanceof ServerError error) {
            boolean isForMoment = Codes.isMomentary(error) || Codes.isNotHere(error);
            throw new RefusedException(
                    isForMoment
                            ? Problem.unreachable(error.code(), error.text())
                            : Problem.refused(error));
        }
        return reply;
    }

    private static Address master(Wire wire, Resp resp, Address address)
            throws IOException, RefusedException {
        wire.write(Resp.encode(List.of(List.of("ROLE"))));
        Object reply = accepted(resp.read());
        if (reply instanceof List<?> role
                && role.size() >= 3
                && role.get(1) instanceof String host
                && role.get(2) instanceof Long port) {
            return address.at(host, port.intValue());
        }
        throw new RefusedException(
                Problem.unreachable("REPLICA", address + " is a replica of nobody"));
    }
}
