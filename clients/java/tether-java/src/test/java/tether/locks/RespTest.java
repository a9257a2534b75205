package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.EOFException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RespTest {
    private static final String ALL =
            "+OK\r\n-ERR no\r\n:-7\r\n$5\r\na\r\nb\0\r\n$-1\r\n_\r\n*2\r\n:1\r\n*0\r\n%1\r\n+k\r\n$0\r\n\r\n"
                    + ">3\r\n+lock\r\n$1\r\nk\r\n$1\r\n7\r\n#t\r\n,1.5\r\n(123456789012345678901\r\n=5\r\ntxt:x\r\n!5\r\nERR x\r\n"
                    + "|1\r\n+a\r\n:1\r\n:8\r\n~1\r\n:9\r\n";

    private static final List<Object> FRAMES = new ArrayList<>();

    static {
        FRAMES.addAll(List.of("OK", new ServerError("ERR no"), -7L, "a\r\nb\0"));
        FRAMES.add(null);
        FRAMES.add(null);
        FRAMES.addAll(
                List.of(
                        List.of(1L, List.of()),
                        Map.of("k", ""),
                        new Push(List.of("lock", "k", "7"))));
        FRAMES.addAll(
                List.of(
                        true,
                        1.5,
                        "123456789012345678901",
                        "x",
                        new ServerError("ERR x"),
                        8L,
                        List.of(9L)));
    }

    private static Resp cut(String text, int size) {
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        int[] at = {0};
        return new Resp(
                buffer -> {
                    int count = Math.min(size, bytes.length - at[0]);
                    System.arraycopy(bytes, at[0], buffer, 0, count);
                    at[0] += count;
                    return count == 0 ? -1 : count;
                });
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 7, 10_000})
    void framesAreTheSameHoweverTheBytesAreCut(int size) throws IOException {
        Resp resp = cut(ALL, size);
        for (Object frame : FRAMES) {
            assertEquals(frame, resp.read());
        }
        assertThrows(EOFException.class, resp::read);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "HTTP/1.1 400\r\n",
                "\r\n",
                ":x\r\n",
                "$3\r\nabcd\r\n",
                "$-2\r\n",
                "*-2\r\n",
                "#x\r\n",
                "+a\rb\r\n",
                "$99999999\r\n",
                "*99999999\r\n",
                "*?\r\n",
                "=2\r\nab\r\n"
            })
    void whatIsNoFrameIsSeen(String text) {
        assertThrows(Resp.MalformedException.class, () -> cut(text, 3).read());
    }

    @Test
    void depthHasALimit() throws IOException {
        assertEquals(List.of(), nested(15));
        assertThrows(Resp.MalformedException.class, () -> nested(17));
    }

    private static Object nested(int depth) throws IOException {
        Object frame = cut("*1\r\n".repeat(depth) + "*0\r\n", 100).read();
        for (int level = 0; level < depth; level++) {
            frame = ((List<?>) frame).get(0);
        }
        return frame;
    }

    @Test
    void aLineThatNeverEndsIsSeen() {
        byte[] part = "x".repeat(1 << 14).getBytes(StandardCharsets.ISO_8859_1);
        Resp resp =
                new Resp(
                        buffer -> {
                            System.arraycopy(part, 0, buffer, 0, part.length);
                            buffer[0] = '+';
                            return part.length;
                        });
        assertThrows(Resp.MalformedException.class, resp::read);
    }

    @Test
    void commandsAreEncoded() {
        assertEquals(
                "*2\r\n$3\r\nGET\r\n$2\r\n\u00c3\u00bc\r\n*1\r\n$4\r\nPING\r\n",
                Resp.string(
                        Resp.encode(List.of(List.of("GET", Resp.bytesOf("ü")), List.of("PING")))));
    }
}
