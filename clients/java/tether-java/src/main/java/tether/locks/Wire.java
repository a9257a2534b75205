package tether.locks;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/** A stream of bytes to a server and back. Only threads of the client use it: an interrupt may close such a stream. */
interface Wire extends AutoCloseable {
    /** As {@link InputStream#read(byte[])}. */
    int read(byte[] buffer) throws IOException;

    void write(byte[] bytes) throws IOException;

    /** How long a read waits from now on, in milliseconds; 0: for ever. */
    void setPatience(int ms) throws IOException;

    @Override
    void close();

    /** TLS could not be set up: the chain, the host's name, or no TLS there (P-CONN-8). */
    final class TlsException extends IOException {
        private static final long serialVersionUID = 1;

        TlsException(SSLException cause) {
            super(cause.getMessage(), cause);
        }
    }

    /** {@code tls}: null where the address is without. */
    static Wire open(Address address, int within, SSLSocketFactory tls, boolean verifiesHost) throws IOException {
        return address.isUnix() ? openUnix(address) : openTcp(address, within, tls, verifiesHost);
    }

    private static Wire openTcp(Address address, int within, SSLSocketFactory tls, boolean verifiesHost)
            throws IOException {
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(address.host(), address.port()), within);
            if (address.isTls()) {
                socket.setSoTimeout(within);
                socket = shake(socket, address, tls, verifiesHost);
            }
            return new OfSocket(socket);
        } catch (IOException | RuntimeException error) {
            socket.close();
            throw error;
        }
    }

    private static Socket shake(Socket socket, Address address, SSLSocketFactory tls, boolean verifiesHost)
            throws IOException {
        SSLSocket secure = (SSLSocket) tls.createSocket(socket, address.host(), address.port(), true);
        if (verifiesHost) {
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            secure.setSSLParameters(parameters);
        }
        try {
            secure.startHandshake();
        } catch (SSLException error) {
            throw new TlsException(error);
        }
        return secure;
    }

    private static Wire openUnix(Address address) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.connect(UnixDomainSocketAddress.of(address.path()));
            return new OfUnix(channel);
        } catch (IOException | RuntimeException error) {
            channel.close();
            throw error;
        }
    }

    /** TCP, with or without TLS. */
    record OfSocket(Socket socket, InputStream in, OutputStream out) implements Wire {
        OfSocket(Socket socket) throws IOException {
            this(socket, socket.getInputStream(), socket.getOutputStream());
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

        @Override
        public void close() {
            try {
                socket.close();
            } catch (IOException ignored) {
                // It is of no use any more.
            }
        }
    }

    /** A peer that cannot vanish, which is why no read needs an end. */
    record OfUnix(SocketChannel channel) implements Wire {
        @Override
        public int read(byte[] buffer) throws IOException {
            return channel.read(ByteBuffer.wrap(buffer));
        }

        @Override
        public void write(byte[] bytes) throws IOException {
            ByteBuffer left = ByteBuffer.wrap(bytes);
            while (left.hasRemaining()) {
                channel.write(left);
            }
        }

        @Override
        public void setPatience(int ms) {}

        @Override
        public void close() {
            try {
                channel.close();
            } catch (IOException ignored) {
                // It is of no use any more.
            }
        }
    }
}
