package tether.locks;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * RESP3. A frame is a Long, Boolean, Double, null, String (one byte in each character), List, Map,
 * {@link ServerError} or {@link Push}.
 */
final class Resp {
    /** Where bytes come from; as {@link java.io.InputStream#read(byte[])}. */
    interface Source {
        int read(byte[] buffer) throws IOException;
    }

    /** The bytes are no frame, or too much of one (P-FRAME-2). */
    static final class MalformedException extends IOException {
        private static final long serialVersionUID = 1;

        MalformedException(String text) {
            super(text);
        }
    }

    private static final int LONGEST = 16 << 20;
    private static final int DEEPEST = 16;

    private final Source source;
    private final byte[] buffer = new byte[1 << 14];
    private int at;
    private int end;

    /** How many more bytes the frame that is being read may have. */
    private int left;

    Resp(Source source) {
        this.source = source;
    }

    static String string(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    /** A text of the user, one byte of its UTF-8 in each character. */
    static String bytesOf(String text) {
        return string(text.getBytes(StandardCharsets.UTF_8));
    }

    /** The text that has these bytes. */
    static String textOf(String bytes) {
        return bytes == null
                ? null
                : new String(bytes.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
    }

    static byte[] encode(List<List<String>> commands) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(128);
        for (List<String> words : commands) {
            out.writeBytes(latin("*" + words.size() + "\r\n"));
            for (String word : words) {
                out.writeBytes(latin("$" + word.length() + "\r\n"));
                out.writeBytes(latin(word));
                out.write('\r');
                out.write('\n');
            }
        }
        return out.toByteArray();
    }

    private static byte[] latin(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    /** The next frame; waits for it. */
    Object read() throws IOException {
        left = LONGEST;
        return read(0);
    }

    private Object read(int depth) throws IOException {
        if (depth > DEEPEST) {
            throw new MalformedException("a frame is nested too deep");
        }
        String line = line();
        if (line.isEmpty()) {
            throw new MalformedException("an empty line");
        }
        String rest = line.substring(1);
        return switch (line.charAt(0)) {
            case '+', '(' -> rest;
            case '-' -> new ServerError(rest);
            case ':' -> number(rest);
            case '_' -> null;
            case '#' -> bool(rest);
            case ',' -> real(rest);
            case '$' -> rest.equals("-1") ? null : bulk(size(rest));
            case '=' -> verbatim(bulk(size(rest)));
            case '!' -> new ServerError(bulk(size(rest)));
            case '*', '~' -> rest.equals("-1") ? null : list(size(rest), depth);
            case '>' -> new Push(list(size(rest), depth));
            case '%' -> map(size(rest), depth);
            case '|' -> {
                map(size(rest), depth);
                yield read(depth);
            }
            default -> throw new MalformedException("a frame of no kind");
        };
    }

    private static long number(String text) throws MalformedException {
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException none) {
            throw new MalformedException("no number");
        }
    }

    private static boolean bool(String text) throws MalformedException {
        return switch (text) {
            case "t" -> true;
            case "f" -> false;
            default -> throw new MalformedException("neither true nor false");
        };
    }

    private static double real(String text) throws MalformedException {
        try {
            return switch (text) {
                case "inf" -> Double.POSITIVE_INFINITY;
                case "-inf" -> Double.NEGATIVE_INFINITY;
                case "nan" -> Double.NaN;
                default -> Double.parseDouble(text);
            };
        } catch (NumberFormatException none) {
            throw new MalformedException("no number");
        }
    }

    private int size(String text) throws MalformedException {
        long size = number(text);
        if (size < 0 || size > left) {
            throw new MalformedException("a size of " + size);
        }
        return (int) size;
    }

    private static String verbatim(String text) throws MalformedException {
        if (text.length() < 4) {
            throw new MalformedException("a verbatim string without its kind");
        }
        return text.substring(4);
    }

    private List<Object> list(int size, int depth) throws IOException {
        List<Object> list = new ArrayList<>(Math.min(size, 1024));
        for (int count = 0; count < size; count++) {
            list.add(read(depth + 1));
        }
        return list;
    }

    private Map<Object, Object> map(int size, int depth) throws IOException {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int count = 0; count < size; count++) {
            Object name = read(depth + 1);
            map.put(name, read(depth + 1));
        }
        return map;
    }

    private String bulk(int size) throws IOException {
        spend(size + 2);
        byte[] bytes = new byte[size];
        int have = 0;
        while (have < size) {
            fill();
            int part = Math.min(size - have, end - at);
            System.arraycopy(buffer, at, bytes, have, part);
            at += part;
            have += part;
        }
        if (next() != '\r' || next() != '\n') {
            throw new MalformedException("a string without its end");
        }
        return string(bytes);
    }

    private String line() throws IOException {
        byte[] bytes = new byte[32];
        int size = 0;
        while (true) {
            byte each = next();
            spend(1);
            if (each == '\r') {
                if (next() != '\n') {
                    throw new MalformedException("a line without its end");
                }
                return string(Arrays.copyOf(bytes, size));
            }
            if (size == bytes.length) {
                bytes = Arrays.copyOf(bytes, size * 2);
            }
            bytes[size++] = each;
        }
    }

    private void spend(int bytes) throws MalformedException {
        left -= bytes;
        if (left < 0) {
            throw new MalformedException("a frame is too long");
        }
    }

    private byte next() throws IOException {
        fill();
        return buffer[at++];
    }

    private void fill() throws IOException {
        if (at == end) {
            at = 0;
            end = Math.max(0, source.read(buffer));
            if (end == 0) {
                throw new EOFException("the server closed the connection");
            }
        }
    }
}
