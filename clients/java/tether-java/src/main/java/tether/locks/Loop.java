package tether.locks;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The one thread that runs the cores of a client: one thing after the other, and what is due in
 * between.
 */
final class Loop {
    private static final Logger LOG = LoggerFactory.getLogger(Loop.class);

    private final BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
    private final List<Node> nodes = new ArrayList<>();
    private final Thread thread;
    private final ReentrantLock draining = new ReentrantLock();
    private volatile boolean isOver;

    Loop(String name) {
        thread = new Thread(this::run, name);
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    /** May be called by any thread. */
    void post(Runnable task) {
        tasks.add(task);
        if (isOver) {
            drain();
        }
    }

    /** The node's times count from now on. Only by tasks of the loop. */
    void add(Node node) {
        nodes.add(node);
    }

    /** The thread ends. What is posted later is run by who posts it. */
    void end() {
        isOver = true;
    }

    private void drain() {
        draining.lock();
        try {
            for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
                task.run();
            }
        } finally {
            draining.unlock();
        }
    }

    private void run() {
        while (!isOver) {
            try {
                Runnable task = next();
                if (task != null) {
                    task.run();
                }
                for (int index = 0; index < nodes.size(); index++) {
                    nodes.get(index).tick(); // Which may add one.
                }
            } catch (InterruptedException nobodysBusiness) {
                LOG.debug("the thread was interrupted, and goes on");
            } catch (RuntimeException | Error error) {
                LOG.error("a step failed", error);
            }
        }
        drain();
    }

    private Runnable next() throws InterruptedException {
        double next = nodes.stream().mapToDouble(Node::next).min().orElse(Double.POSITIVE_INFINITY);
        if (Double.isInfinite(next)) {
            return tasks.take();
        }
        return tasks.poll((long) Math.ceil(next * 1e6), TimeUnit.NANOSECONDS);
    }
}
