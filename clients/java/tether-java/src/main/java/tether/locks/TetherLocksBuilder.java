package tether.locks;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;

/** Sets up a {@link TetherLocks}. */
public final class TetherLocksBuilder {
    private static final int LONGEST_NAME = 200;

    private Address address;
    private final List<Address> others = new ArrayList<>();
    private final List<Address> sentinels = new ArrayList<>();
    private String master;
    private String name;
    private Duration grace;
    private Duration stopWithin = Duration.ZERO;
    private Duration fence;
    private boolean isCluster;
    private SSLContext tls;
    private boolean verifiesHost = true;
    private Executor executor;
    private TetherObserver observer;

    TetherLocksBuilder(String uri) {
        address = Address.of(uri);
    }

    /**
     * The name of the connection, which {@code tether who} shows. Default: {@code
     * tether:<host>:<pid>:<program>}.
     *
     * @param name printable ASCII without spaces; other bytes become {@code _}
     * @return this
     */
    public TetherLocksBuilder name(String name) {
        this.name = Objects.requireNonNull(name);
        return this;
    }

    /**
     * Holds in a session: they outlive a connection that breaks, if the client is back within this
     * time. Default: no session; a break loses all holds.
     *
     * @param grace how long the server keeps them
     * @return this
     */
    public TetherLocksBuilder grace(Duration grace) {
        this.grace = grace;
        return this;
    }

    /**
     * How long work goes on after a loss was told. Holders are told so much earlier. Default: 0.
     *
     * @param time it may take
     * @return this
     */
    public TetherLocksBuilder stopWithin(Duration time) {
        this.stopWithin = time;
        return this;
    }

    /**
     * How long one answer of the server vouches for the holds. Default: as long as the server's
     * settings or the grace allow.
     *
     * @param fence a shorter time
     * @return this
     */
    public TetherLocksBuilder fence(Duration fence) {
        this.fence = fence;
        return this;
    }

    /**
     * Further servers of the same deployment, which are tried in turn after the first one. A
     * replica leads to its master.
     *
     * @param uris where they are; credentials are those of the first one, or of {@link
     *     #credentials}
     * @return this
     */
    public TetherLocksBuilder others(String... uris) {
        for (String uri : uris) {
            others.add(Address.of(uri));
        }
        return this;
    }

    /**
     * Asks Sentinels where the master is, each time it connects. Of the first URI only credentials,
     * database and scheme count then.
     *
     * @param master the name that the Sentinels have for it
     * @param uris where the Sentinels are, with their own credentials
     * @return this
     */
    public TetherLocksBuilder sentinels(String master, String... uris) {
        this.master = master;
        for (String uri : uris) {
            sentinels.add(Address.of(uri));
        }
        return this;
    }

    /**
     * The servers are a cluster: requests go where their slot is.
     *
     * @return this
     */
    public TetherLocksBuilder cluster() {
        isCluster = true;
        return this;
    }

    /**
     * Credentials, instead of those in the URI.
     *
     * @param user null: the default user
     * @param password its password
     * @return this
     */
    public TetherLocksBuilder credentials(String user, String password) {
        address = address.withCredentials(user, password);
        return this;
    }

    /**
     * How to do TLS, for {@code rediss://}. Default: the JVM's trust store.
     *
     * @param context with the trusted certificates
     * @return this
     */
    public TetherLocksBuilder tls(SSLContext context) {
        tls = context;
        return this;
    }

    /**
     * Accepts a certificate of another host, as long as its chain is trusted.
     *
     * @return this
     */
    public TetherLocksBuilder withoutHostVerification() {
        verifiesHost = false;
        return this;
    }

    /**
     * Runs callbacks and the dependents of stages. Default: a thread for each that runs, kept for a
     * minute.
     *
     * @param executor must not run them in the calling thread, nor drop them in silence; what it
     *     refuses runs in a thread of the client's own
     * @return this
     */
    public TetherLocksBuilder executor(Executor executor) {
        this.executor = Objects.requireNonNull(executor);
        return this;
    }

    /**
     * Is told what happens.
     *
     * @param observer for meters and logs
     * @return this
     */
    public TetherLocksBuilder observer(TetherObserver observer) {
        this.observer = Objects.requireNonNull(observer);
        return this;
    }

    /**
     * Makes the client. It connects when it is first needed.
     *
     * @return close it at the end of the program
     */
    public TetherLocks build() {
        Settings settings =
                new Settings(
                        grace == null ? null : Millis.of(grace),
                        Millis.of(stopWithin),
                        fence == null ? null : Millis.of(fence),
                        isCluster,
                        Clock.SYSTEM.boot(),
                        () -> ThreadLocalRandom.current().nextDouble());
        Greeter greeter = new Greeter(connectionName(), tlsFactory(), verifiesHost);
        List<Address> all = new ArrayList<>(List.of(address));
        for (Address other : others) {
            all.add(other.withCredentials(address.user(), address.password()));
        }
        Node.Addresses addresses = (within, slot) -> all;
        if (!sentinels.isEmpty()) {
            addresses = new Sentinels(master, sentinels, address, tlsFactory(), verifiesHost);
        }
        ClientContext context = new ClientContext(Clock.SYSTEM, executor, observer);
        Cluster cluster = new Cluster(context, settings, addresses, greeter);
        return new TetherLocks(context, cluster);
    }

    /** Null where nothing needs it: the JVM's takes a while to load. */
    private SSLSocketFactory tlsFactory() {
        if (tls != null) {
            return tls.getSocketFactory();
        }
        boolean isNeeded =
                Stream.of(List.of(address), others, sentinels)
                        .flatMap(List::stream)
                        .anyMatch(Address::isTls);
        return isNeeded ? (SSLSocketFactory) SSLSocketFactory.getDefault() : null;
    }

    /** P-CONN-3. */
    private String connectionName() {
        String full = name;
        if (full == null) {
            String command = System.getProperty("sun.java.command", "java").split(" ")[0];
            String program = command.substring(command.lastIndexOf('/') + 1);
            full = "tether:" + host() + ":" + ProcessHandle.current().pid() + ":" + program;
        }
        StringBuilder safe = new StringBuilder();
        for (char each : Resp.bytesOf(full).toCharArray()) {
            safe.append('!' <= each && each <= '~' ? each : '_');
        }
        return safe.substring(0, Math.min(LONGEST_NAME, safe.length()));
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException unknown) {
            return "unknown";
        }
    }
}
