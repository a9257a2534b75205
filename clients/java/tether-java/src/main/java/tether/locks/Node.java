package tether.locks;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A core with a connection below it. All of it is run by the loop's thread, except where it says
 * so.
 */
final class Node {
    /** Where its server may be, which is to have this slot. Asked by a thread that may wait. */
    interface Addresses {
        List<Address> find(double within, int slot) throws Greeter.RefusedException;
    }

    /** What is told about the node itself, and about watches. */
    interface Listener {
        /** It was greeted, and its server is of use. */
        void connected(Address address);

        /** {@code problem}: null where a connection that stood has ended, also by itself. */
        void disconnected(Problem problem);

        /** Runs this once all holders that lost something have been told. */
        void whenTold(Runnable action);

        /** The client was closed, and nothing more is to be done here. */
        void over();

        void event(Event event);
    }

    private record Closing(Stamp since, double after, Connection connection) {}

    private static final Logger LOG = LoggerFactory.getLogger(Node.class);

    final Core core;
    private final Loop loop;
    private final Clock clock;
    private final Addresses addresses;
    private final Greeter greeter;
    private final ThreadFactory threads;
    private final Listener listener;
    private final List<Closing> closing = new ArrayList<>();

    /** Of the connection that counts; what others say is not heard. */
    private int number;

    private Connection connection;

    /** It was told as connected. */
    private boolean hasStood;

    /** Where it is to connect to, until it has. */
    private Address expected;

    Node(
            Loop loop,
            Clock clock,
            Settings settings,
            Addresses addresses,
            Greeter greeter,
            ThreadFactory threads,
            Listener listener) {
        this.loop = loop;
        this.clock = clock;
        this.addresses = addresses;
        this.greeter = greeter;
        this.threads = threads;
        this.listener = listener;
        core = new Core(clock.now(), settings);
    }

    /** Something happens: what is due comes first, and what follows from it is done. */
    void act(Consumer<Core> what) {
        core.tick(clock.now());
        what.accept(core);
        settle();
    }

    /** May be called by any thread. */
    void post(Consumer<Core> what) {
        loop.post(() -> act(what));
    }

    boolean isOver() {
        return core.link.isOver() && closing.isEmpty();
    }

    // ---- time ----

    /** In how many milliseconds something is due. */
    double next() {
        core.now = clock.now();
        double next = core.next();
        for (Closing each : closing) {
            next = Math.min(next, core.until(each.since, each.after));
        }
        return Math.max(0, next);
    }

    void tick() {
        core.tick(clock.now());
        closing.removeIf(
                each -> {
                    boolean isDue = core.until(each.since, each.after) <= 0;
                    if (isDue) {
                        each.connection.close();
                    }
                    return isDue;
                });
        settle();
    }

    // ---- what the core says ----

    private void settle() {
        if (connection != null && !hasStood && core.link.isUp()) {
            hasStood = true;
            listener.connected(address());
        }
        for (Core.Output output = core.take(); !output.isEmpty(); output = core.take()) {
            if (!output.sent().isEmpty() && connection != null) {
                connection.write(Resp.encode(output.sent()));
            }
            for (Event event : output.events()) {
                try {
                    tell(event);
                } catch (RuntimeException error) { // The other events are told all the same.
                    LOG.error("an event could not be told", error);
                }
            }
            output.orders()
                    .forEach(this::carryOut); // Holders are told before a connection's end frees
            // their locks.
        }
        if (isOver()) {
            listener.over();
        }
    }

    private void carryOut(Order order) {
        if (order instanceof Order.Connect connect) {
            number++;
            int mine = number;
            if (!begins("tether-reader", () -> open(mine, connect))) {
                loop.post(() -> unreached(mine, Problem.UNREACHABLE));
            }
        } else if (order instanceof Order.Leave leave) {
            number++;
            Connection left = connection;
            connection = null;
            if (left == null) {
                return;
            }
            left.stop();
            if (leave.after() > 0) {
                closing.add(new Closing(core.now, leave.after(), left)); // P-FENCE-9
            } else {
                listener.whenTold(left::close);
            }
            ended(leave.problem());
        }
    }

    /** {@code problem}: null where it ended without one that is known. */
    private void ended(Problem problem) {
        boolean isFault = !hasStood && !core.isClosed;
        if (problem != null || isFault) {
            failed(problem == null ? Problem.UNREACHABLE : problem);
        } else if (hasStood) {
            listener.disconnected(null);
        }
        hasStood = false;
    }

    private void failed(Problem problem) {
        LOG.info("cannot connect: {}", problem.text());
        listener.disconnected(problem);
    }

    private void tell(Event event) {
        if (event instanceof Event.Granted granted) {
            RequestListener told = (RequestListener) granted.id();
            told.granted(granted.request(), granted.token(), granted.key());
        } else if (event instanceof Event.Refused refused) {
            ((RequestListener) refused.id()).refused(refused.problem());
        } else if (event instanceof Event.Lost lost) {
            ((RequestListener) lost.id()).lost(lost.reason());
        } else if (event instanceof Event.Releasing releasing) {
            ((RequestListener) releasing.id()).releasing(releasing.problem());
        } else if (event instanceof Event.Released released) {
            ((RequestListener) released.id()).released();
        } else if (event instanceof Event.Over over) {
            ((RequestListener) over.id()).over();
        } else if (event instanceof Event.Extended extended) {
            ((RequestListener) extended.id()).extended();
        } else if (event instanceof Event.NotExtended not) {
            ((RequestListener) not.id()).notExtended(not.problem());
        } else if (event instanceof Event.Checked checked) {
            ((RequestListener) checked.id()).checked(checked.problem());
        } else {
            listener.event(event);
        }
    }

    // ---- the connection ----

    /** Whether there is memory for another thread. */
    private boolean begins(String name, Runnable run) {
        Thread thread = threads.newThread(run);
        thread.setName(name);
        thread.setDaemon(true);
        try {
            thread.start();
            return true;
        } catch (OutOfMemoryError error) {
            LOG.error("cannot connect", error);
            return false;
        }
    }

    /** In a thread of its own, which then reads. */
    private void open(int mine, Order.Connect order) {
        Greeter.Greeted greeted;
        double within = order.within();
        try {
            greeted = greeter.greet(addresses.find(within, order.slot()), within);
        } catch (Greeter.RefusedException refused) {
            loop.post(() -> unreached(mine, refused.problem));
            return;
        } catch (RuntimeException | Error error) {
            loop.post(() -> unreached(mine, Problem.UNREACHABLE));
            LOG.error("cannot connect", error);
            return;
        }
        Connection opened = new Connection(greeted);
        loop.post(() -> connected(mine, opened));
        try {
            while (true) {
                Object frame = greeted.resp().read();
                loop.post(() -> received(mine, frame));
            }
        } catch (IOException | RuntimeException | Error error) {
            opened.close();
            loop.post(() -> broke(mine));
            LOG.debug("the connection to {} ended: {}", greeted.address(), error.toString());
        }
    }

    private void unreached(int mine, Problem problem) {
        if (counts(mine)) {
            number++; // What its reader says later is not heard.
            failed(problem);
            core.link.unreached(problem);
            settle();
        }
    }

    /**
     * Whether this connection, or attempt at one, still counts once what is due has been done: that
     * may leave it for another.
     */
    private boolean counts(int mine) {
        core.tick(clock.now());
        settle();
        return mine == number;
    }

    private void connected(int mine, Connection opened) {
        if (!counts(mine)) {
            opened.close();
            return;
        }
        if (!begins("tether-writer", opened::run)) {
            opened.close();
            unreached(mine, Problem.UNREACHABLE);
            return;
        }
        LOG.debug("connected to {}", opened.greeted.address());
        connection = opened;
        core.link.connected(opened.greeted.address().isUnix());
        settle();
    }

    private void received(int mine, Object frame) {
        if (counts(mine)) {
            core.link.received(frame);
            settle();
        }
    }

    private void broke(int mine) {
        if (counts(mine)) {
            LOG.info("the connection to {} ended", connection.greeted.address());
            connection.stop();
            connection = null;
            ended(null);
            core.link.broke();
            settle();
        }
    }

    /** Says where it will be, before it is connected. */
    Node expect(Address address) {
        expected = address;
        return this;
    }

    Address expected() {
        return connection == null ? expected : null;
    }

    /** Null where there is no connection. */
    Address address() {
        return connection == null ? null : connection.greeted.address();
    }

    /**
     * What is written is written by a thread of its own: a peer that takes nothing must not stop
     * the loop.
     */
    private static final class Connection {
        private static final byte[] END = new byte[0];

        final Greeter.Greeted greeted;
        private final BlockingQueue<byte[]> queue = new LinkedBlockingQueue<>();
        private volatile boolean isStopped;

        Connection(Greeter.Greeted greeted) {
            this.greeted = greeted;
        }

        void write(byte[] bytes) {
            queue.add(bytes);
        }

        /** Nothing more is written. */
        void stop() {
            isStopped = true;
            queue.add(END);
        }

        void close() {
            stop();
            greeted.wire().close();
        }

        void run() {
            try {
                while (true) {
                    byte[] bytes = queue.take();
                    if (isStopped) {
                        return;
                    }
                    greeted.wire().write(bytes);
                }
            } catch (IOException | RuntimeException | Error error) {
                greeted.wire().close(); // The reader sees it.
            } catch (InterruptedException nobodysBusiness) {
                close();
            }
        }
    }
}
