package tether.locks.conform;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.List;
import tether.locks.DataConnection;

/**
 * A connection for data, of the plainest kind: it knows the replies that the suite's guarded writes
 * have.
 */
final class Data implements DataConnection {
    private final URI url;
    private Socket socket;
    private InputStream in;

    Data(JsonNode call) {
        url = URI.create(call.path("url").asText("redis://localhost"));
    }

    @Override
    public Object send(List<byte[]> command) throws IOException {
        if (socket == null) {
            socket = new Socket(url.getHost(), url.getPort());
            in = new BufferedInputStream(socket.getInputStream());
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.writeBytes(ascii("*" + command.size() + "\r\n"));
        for (byte[] word : command) {
            out.writeBytes(ascii("$" + word.length + "\r\n"));
            out.writeBytes(word);
            out.writeBytes(ascii("\r\n"));
        }
        socket.getOutputStream().write(out.toByteArray());
        return reply();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private Object reply() throws IOException {
        String line = line();
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '-':
                throw new IOException(rest);
            case ':':
                return Long.valueOf(rest);
            case '$':
                if (rest.equals("-1")) {
                    return null;
                }
                byte[] bytes = in.readNBytes(Integer.parseInt(rest) + 2);
                return new String(bytes, 0, bytes.length - 2, StandardCharsets.UTF_8);
            default:
                return rest;
        }
    }

    private String line() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int each = in.read(); each != '\n'; each = in.read()) {
            if (each < 0) {
                throw new EOFException("the server closed the connection for data");
            }
            line.write(each);
        }
        return line.toString(StandardCharsets.UTF_8).stripTrailing();
    }
}
