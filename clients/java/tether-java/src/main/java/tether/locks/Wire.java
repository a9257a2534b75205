package tether.locks;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.security.cert.CertPathValidatorException;
import java.security.cert.CertificateException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * A stream of bytes to a server and back. Only threads of the client use it: an interrupt may close
 * such a stream.
 */
interface Wire extends AutoCloseable {
    /** As {@link InputStream#read(byte[])}. */
    int read(byte[] buffer) throws IOException;

    void write(byte[] bytes) throws IOException;

    /** How long a read waits from now on, in milliseconds; 0: for ever. */
    void setPatience(int ms) throws IOException;

    @Override
    void close();

    /** The chain or the host's name could not be verified (P-CONN-8). */
    final class TlsException extends IOException {
        private static final long serialVersionUID = 1;

        TlsException(SSLException cause) {
            super(cause.getMessage(), cause);
        }
    }

    /** {@code tls}: null where the address is without. */
    static Wire open(Address address, int within, SSLSocketFactory tls, boolean verifiesHost)
            throws IOException {
        return address.isUnix()
                ? openUnix(address, within)
                : openTcp(address, within, tls, verifiesHost);
    }

    private static Wire openTcp(
            Address address, int within, SSLSocketFactory tls, boolean verifiesHost)
            throws IOException {
        Socket socket = connect(address, within);
        try {
            socket.setTcpNoDelay(true);
            if (address.isTls()) {
                socket.setSoTimeout(within);
                return new OfSocket(socket, shake(socket, address, tls, verifiesHost));
            }
            return new OfSocket(socket, socket);
        } catch (IOException | RuntimeException error) {
            socket.close();
            throw error;
        }
    }

    /**
     * To the first address of the host's name that answers; they share the time that their search
     * leaves (P-CONN-9).
     */
    private static Socket connect(Address address, int within) throws IOException {
        long began = System.nanoTime();
        InetAddress[] found = find(address.host(), within);
        long left = within - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        int share = (int) Math.max(1, left / found.length); // 0 would be for ever.
        IOException last = null;
        for (InetAddress each : found) {
            Socket socket = new Socket();
            try {
                socket.connect(new InetSocketAddress(each, address.port()), share);
                return socket;
            } catch (IOException error) {
                socket.close();
                last = error;
            }
        }
        throw last;
    }

    /** The system's search has no time-out: a thread of its own waits for it. */
    private static InetAddress[] find(String host, int within) throws IOException {
        CompletableFuture<InetAddress[]> found = new CompletableFuture<>();
        Thread thread = new Thread(() -> find(host, found), "tether-name");
        thread.setDaemon(true);
        thread.start();
        try {
            return found.orTimeout(within, TimeUnit.MILLISECONDS).join();
        } catch (CompletionException error) {
            if (error.getCause() instanceof UnknownHostException unknown) {
                throw unknown;
            }
            throw error.getCause() instanceof TimeoutException
                    ? new SocketTimeoutException("no address of the host in time")
                    : new IOException(error.getCause());
        }
    }

    private static void find(String host, CompletableFuture<InetAddress[]> found) {
        try {
            found.complete(InetAddress.getAllByName(host));
        } catch (UnknownHostException | RuntimeException | Error error) {
            found.completeExceptionally(error);
        }
    }

    private static Socket shake(
            Socket socket, Address address, SSLSocketFactory tls, boolean verifiesHost)
            throws IOException {
        SSLSocket secure =
                (SSLSocket) tls.createSocket(socket, address.host(), address.port(), true);
        if (verifiesHost) {
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            secure.setSSLParameters(parameters);
        }
        try {
            secure.startHandshake();
        } catch (SSLException error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause instanceof CertificateException
                        || cause instanceof CertPathValidatorException) {
                    throw new TlsException(error);
                }
            }
            throw error;
        }
        return secure;
    }

    /**
     * Such a channel has no time-out, and a server whose queue is full lets it wait: a timer closes
     * it.
     */
    private static Wire openUnix(Address address, int within) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        CompletableFuture<Boolean> isLate = new CompletableFuture<>();
        isLate.completeOnTimeout(true, within, TimeUnit.MILLISECONDS)
                .thenAccept(late -> closeIf(late, channel));
        try {
            channel.connect(UnixDomainSocketAddress.of(address.path()));
            isLate.complete(false);
            return new OfUnix(channel);
        } catch (AsynchronousCloseException late) {
            throw new SocketTimeoutException("no connection in time");
        } catch (IOException | RuntimeException error) {
            isLate.complete(false);
            channel.close();
            throw error;
        }
    }

    private static void closeIf(boolean isLate, SocketChannel channel) {
        if (isLate) {
            try {
                channel.close();
            } catch (IOException ignored) {
                // Whoever connects sees it.
            }
        }
    }

    /** TCP: what carries the bytes, and the same or TLS on it. */
    record OfSocket(Socket carrier, Socket socket, InputStream in, OutputStream out)
            implements Wire {
        OfSocket(Socket carrier, Socket socket) throws IOException {
            this(carrier, socket, socket.getInputStream(), socket.getOutputStream());
        }

        @Override
        public int read(byte[] buffer) throws IOException {
            return in.read(buffer);
        }

        @Override
        public void write(byte[] bytes) throws IOException {
            out.write(bytes);
            out.flush();
        }

        @Override
        public void setPatience(int ms) throws IOException {
            socket.setSoTimeout(ms);
        }

        /** Not that of TLS: its farewell would wait for a peer that takes nothing. */
        @Override
        public void close() {
            try {
                carrier.close();
            } catch (IOException ignored) {
                // It is of no use any more.
            }
        }
    }

    /** A Unix socket. Its channel does not block, since only so a read can have an end. */
    final class OfUnix implements Wire {
        private final SocketChannel channel;
        private final Selector readable = Selector.open();
        private final Selector writable = Selector.open();
        private volatile int patience;

        OfUnix(SocketChannel channel) throws IOException {
            this.channel = channel;
            channel.configureBlocking(false);
            channel.register(readable, SelectionKey.OP_READ);
            channel.register(writable, SelectionKey.OP_WRITE);
        }

        @Override
        public int read(byte[] buffer) throws IOException {
            int count = channel.read(ByteBuffer.wrap(buffer));
            while (count == 0) {
                boolean isReady = select(readable, patience);
                count = channel.read(ByteBuffer.wrap(buffer));
                if (!isReady && count == 0 && patience > 0) {
                    throw new SocketTimeoutException("no answer in time");
                }
            }
            return count;
        }

        @Override
        public void write(byte[] bytes) throws IOException {
            ByteBuffer left = ByteBuffer.wrap(bytes);
            while (left.hasRemaining()) {
                if (channel.write(left) == 0) {
                    select(writable, 0);
                }
            }
        }

        private static boolean select(Selector selector, int ms) throws IOException {
            try {
                selector.select(ms);
                boolean isReady = !selector.selectedKeys().isEmpty();
                selector.selectedKeys().clear();
                return isReady;
            } catch (ClosedSelectorException closed) {
                throw new IOException("the connection was closed", closed);
            }
        }

        @Override
        public void setPatience(int ms) {
            patience = ms;
        }

        @Override
        public void close() {
            try (readable;
                    writable) {
                channel.close();
            } catch (IOException ignored) {
                // It is of no use any more.
            }
        }
    }
}
