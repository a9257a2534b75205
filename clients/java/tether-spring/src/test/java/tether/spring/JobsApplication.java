package tether.spring;

import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * An application with scheduled jobs, each of which runs in one instance at a time. It says when it
 * works, as {@code tether.locks.Beliefs} reads it. Argument: the server's URI.
 */
@SpringBootConfiguration
@EnableAutoConfiguration
@EnableScheduling
class JobsApplication {
    static final String[] JOBS = {"report", "invoices"};

    private static final int STEPS = 30;

    public static void main(String[] words) {
        new SpringApplicationBuilder(JobsApplication.class)
                .web(WebApplicationType.NONE)
                .properties("spring.data.redis.url=" + words[0], "spring.main.banner-mode=off")
                .run();
    }

    @Bean
    Jobs jobs() {
        return new Jobs();
    }

    @Bean
    TaskScheduler taskScheduler() {
        ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        scheduler.setPoolSize(JOBS.length);
        return scheduler;
    }

    static class Jobs {
        @Scheduled(fixedDelay = 100)
        @TetherLock(name = "job:report", waitAtMost = "20s")
        public void report() throws InterruptedException {
            work(JOBS[0]);
        }

        @Scheduled(fixedDelay = 100)
        @TetherLock(name = "job:invoices", waitAtMost = "20s")
        public void invoices() throws InterruptedException {
            work(JOBS[1]);
        }

        private static void work(String job) throws InterruptedException {
            long began = System.nanoTime(); // CLOCK_MONOTONIC, which all processes share.
            for (int step = 0; step < STEPS; step++) {
                System.out.println("B " + job + " " + began + " " + System.nanoTime());
                Thread.sleep(5);
            }
        }
    }
}
