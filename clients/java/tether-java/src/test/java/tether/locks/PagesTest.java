package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.io.StringWriter;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The examples of the pages are compiled and run, one after the other, and print what they say. */
@Timeout(600)
class PagesTest {
    private static final Pattern EXAMPLE =
            Pattern.compile("^```java\\n(.*?)^```$", Pattern.DOTALL | Pattern.MULTILINE);
    private static final Pattern IMPORT = Pattern.compile("^import .*;\\n", Pattern.MULTILINE);
    private static final Pattern PRINTS = Pattern.compile("^// prints: (.*)$", Pattern.MULTILINE);

    @ParameterizedTest
    @ValueSource(strings = {"README.md", "coming-from.md"})
    void examplesRun(String page, @TempDir Path folder) throws Exception {
        String text = Files.readString(Path.of("..", page));
        try (TestServer server = TestServer.start()) {
            Set<String> imports = new TreeSet<>();
            StringBuilder body = new StringBuilder();
            List<String> expected = new ArrayList<>();
            EXAMPLE.matcher(text)
                    .results()
                    .forEach(
                            example -> {
                                String code =
                                        example.group(1)
                                                .replace("redis://localhost:6379", server.uri());
                                IMPORT.matcher(code)
                                        .results()
                                        .forEach(found -> imports.add(found.group()));
                                boolean declares = code.contains("TetherLocks locks =");
                                String statements = IMPORT.matcher(code).replaceAll("");
                                body.append(declares ? statements : "{\n" + statements + "}\n");
                                PRINTS.matcher(code)
                                        .results()
                                        .forEach(line -> expected.add(line.group(1)));
                            });
            assertFalse(expected.isEmpty());
            assertEquals(expected, run(folder, imports, body.toString()).lines().toList());
        }
    }

    private static String run(Path folder, Set<String> imports, String body) throws Exception {
        Path source = folder.resolve("Example.java");
        Files.writeString(
                source,
                "import java.time.Duration;\nimport java.util.*;\nimport java.util.concurrent.*;\nimport tether.locks.*;\n"
                        + String.join("", imports)
                        + "public class Example { public static void main(String[] none) throws Exception {\n"
                        + body
                        + "\nlocks.close();\n}}\n");
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter said = new StringWriter();
        boolean isCompiled =
                compiler.getTask(
                                said,
                                null,
                                null,
                                List.of(
                                        "-d",
                                        folder.toString(),
                                        "-cp",
                                        System.getProperty("java.class.path"),
                                        "-Xlint:all,-try"),
                                null,
                                compiler.getStandardFileManager(null, null, null)
                                        .getJavaFileObjects(source))
                        .call();
        assertTrue(isCompiled, said.toString());
        PrintStream out = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            loader.loadClass("Example")
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) new String[0]);
        } finally {
            System.setOut(out);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
