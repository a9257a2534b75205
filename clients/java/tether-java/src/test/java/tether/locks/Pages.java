package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
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
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/** The examples of a page are compiled and run, one after the other, and print what they say. */
public final class Pages {
    private static final Pattern IMPORT = Pattern.compile("^import .*;\\n", Pattern.MULTILINE);
    private static final Pattern PRINTS = Pattern.compile("^// prints: (.*)$", Pattern.MULTILINE);
    private static final Set<String> IMPORTS =
            Set.of(
                    "import java.time.Duration;\n",
                    "import java.util.*;\n",
                    "import java.util.concurrent.*;\n",
                    "import tether.locks.*;\n");

    private Pages() {}

    /**
     * Examples of a page.
     *
     * @param page a file
     * @param kind what stands behind the three marks that begin them
     * @return their texts
     */
    public static List<String> examples(Path page, String kind) throws IOException {
        Pattern example =
                Pattern.compile(
                        "^```" + kind + "\\n(.*?)^```$", Pattern.DOTALL | Pattern.MULTILINE);
        return example.matcher(Files.readString(page))
                .results()
                .map(found -> found.group(1))
                .toList();
    }

    /**
     * Runs examples in one program.
     *
     * @param folder for its files
     * @param examples of which each is a block of its own
     * @param outside words of an example that declares what is there for those after it
     * @param real puts the place of a real server where an example has another one
     */
    public static void assertRun(
            Path folder, List<String> examples, Set<String> outside, UnaryOperator<String> real)
            throws Exception {
        Set<String> imports = new TreeSet<>(IMPORTS);
        StringBuilder body = new StringBuilder();
        List<String> expected = new ArrayList<>();
        for (String example : examples) {
            String code = real.apply(example);
            IMPORT.matcher(code).results().forEach(found -> imports.add(found.group()));
            String statements = IMPORT.matcher(code).replaceAll("");
            boolean isOutside = outside.stream().anyMatch(code::contains);
            body.append(isOutside ? statements : "{\n" + statements + "}\n");
            PRINTS.matcher(code).results().forEach(line -> expected.add(line.group(1)));
        }
        assertFalse(expected.isEmpty());
        assertEquals(expected, run(folder, imports, body.toString()).lines().toList());
    }

    private static String run(Path folder, Set<String> imports, String body) throws Exception {
        Path source = folder.resolve("Example.java");
        Files.writeString(
                source,
                String.join("", imports)
                        + "public class Example { public static void main(String[] none) throws Exception {\n"
                        + body
                        + "}}\n");
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
                                        "-proc:none",
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
