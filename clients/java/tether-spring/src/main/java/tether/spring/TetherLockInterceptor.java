package tether.spring;

import java.lang.reflect.Method;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.common.TemplateParserContext;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ReflectionUtils;
import tether.locks.Hold;
import tether.locks.LockRequest;
import tether.locks.TetherLocks;

/** Runs methods that are annotated with {@link TetherLock} under their locks. */
final class TetherLockInterceptor implements MethodInterceptor {
    private final Supplier<TetherLocks> locks;
    private final SpelExpressionParser parser = new SpelExpressionParser();
    private final ParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();

    TetherLockInterceptor(Supplier<TetherLocks> locks) {
        this.locks = locks;
    }

    @Override
    public Object invoke(MethodInvocation invocation) throws Throwable {
        Class<?> type = invocation.getThis() == null ? null : invocation.getThis().getClass();
        Method method = AopUtils.getMostSpecificMethod(invocation.getMethod(), type);
        TetherLock lock = AnnotatedElementUtils.findMergedAnnotation(method, TetherLock.class);
        if (lock == null) {
            return invocation.proceed();
        }
        String name = name(lock, method, invocation);
        LockRequest request = locks.get().lock(name);
        if (!lock.waitAtMost().isEmpty()) {
            request = request.waitAtMost(DurationStyle.detectAndParse(lock.waitAtMost()));
        }
        if (!lock.lease().isEmpty()) {
            request = request.lease(DurationStyle.detectAndParse(lock.lease()));
        }
        try (Hold hold = acquire(request, name, invocation.getMethod())) {
            return invocation.proceed();
        }
    }

    /** {@code called}: the proxy may throw only what this method declares. */
    private static Hold acquire(LockRequest request, String name, Method called)
            throws InterruptedException {
        try {
            return request.acquire();
        } catch (InterruptedException interrupted) {
            if (ReflectionUtils.declaresException(called, InterruptedException.class)) {
                throw interrupted;
            }
            Thread.currentThread().interrupt();
            throw new LockInterruptedException(name, interrupted);
        }
    }

    private String name(TetherLock lock, Method method, MethodInvocation invocation) {
        EvaluationContext context =
                new MethodBasedEvaluationContext(
                        invocation.getThis(), method, invocation.getArguments(), names);
        return parser.parseExpression(lock.name(), new TemplateParserContext())
                .getValue(context, String.class);
    }
}
