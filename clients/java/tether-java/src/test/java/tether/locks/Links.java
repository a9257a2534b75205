package tether.locks;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** A way to a server on which connections can be cut, or carry nothing for a time. */
final class Links implements AutoCloseable {
    final int port;
    private final ServerSocket listener = new ServerSocket(0);
    private final int to;

    /** By the port from which the server sees them. */
    private final Map<Integer, Link> links = new ConcurrentHashMap<>();

    Links(int to) throws IOException {
        this.to = to;
        port = listener.getLocalPort();
        daemon(this::accept);
    }

    /** Ends this connection, to both sides. */
    void cut(int port) {
        Link link = links.get(port);
        if (link != null) {
            link.end();
        }
    }

    /** It carries nothing until this is said with false. */
    void freeze(int port, boolean isFrozen) {
        Link link = links.get(port);
        if (link != null) {
            link.freeze(isFrozen);
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        links.values().forEach(Link::end);
    }

    private static void daemon(Runnable action) {
        Thread thread = new Thread(action);
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (true) {
            Socket near;
            try {
                near = listener.accept();
            } catch (IOException closed) {
                return;
            }
            try {
                Link link = new Link(near, new Socket("127.0.0.1", to));
                links.put(link.far.getLocalPort(), link);
                daemon(() -> link.carry(near, link.far));
                daemon(() -> link.carry(link.far, near));
            } catch (IOException refused) {
                end(near);
            }
        }
    }

    private static void end(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is over.
        }
    }

    private final class Link {
        private final Socket near;
        private final Socket far;
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition goesOn = lock.newCondition();
        private boolean isFrozen;

        Link(Socket near, Socket far) throws IOException {
            this.near = near;
            this.far = far;
            near.setTcpNoDelay(true);
            far.setTcpNoDelay(true);
        }

        void freeze(boolean now) {
            lock.lock();
            try {
                isFrozen = now;
                goesOn.signalAll();
            } finally {
                lock.unlock();
            }
        }

        void end() {
            Links.end(near);
            Links.end(far);
            links.remove(far.getLocalPort(), this);
            freeze(false);
        }

        void carry(Socket from, Socket into) {
            byte[] bytes = new byte[1 << 14];
            try {
                InputStream in = from.getInputStream();
                OutputStream out = into.getOutputStream();
                for (int count = in.read(bytes); count > 0; count = in.read(bytes)) {
                    awaitThaw();
                    out.write(bytes, 0, count);
                }
            } catch (IOException over) {
                // As the other direction is told now.
            }
            end();
        }

        private void awaitThaw() {
            lock.lock();
            try {
                while (isFrozen) {
                    goesOn.awaitUninterruptibly();
                }
            } finally {
                lock.unlock();
            }
        }
    }
}
