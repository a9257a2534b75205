package tether.locks;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The examples of the pages. */
@Timeout(600)
class PagesTest {
    @ParameterizedTest
    @ValueSource(strings = {"README.md", "coming-from.md"})
    void examplesRun(String page, @TempDir Path folder) throws Exception {
        List<String> examples = new ArrayList<>(Pages.examples(Path.of("..", page), "java"));
        examples.add("locks.close();\n");
        try (TestServer server = TestServer.start()) {
            Pages.assertRun(
                    folder,
                    examples,
                    Set.of("TetherLocks locks =", "locks.close()"),
                    code -> code.replace("redis://localhost:6379", server.uri()));
        }
    }
}
